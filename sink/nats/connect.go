package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Timings of the connection. A server that answers no ping for two rounds is given up, and the
// sink connects again.
const (
	pingInterval  = 10 * time.Second
	reconnectWait = 250 * time.Millisecond
	reconnectMax  = 5 * time.Second
)

// connect makes the connection, which reconnects from then on, and the only
// subscription, on which every acknowledgement arrives.
func (s *Sink) connect() error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	s.servers = "the embedded server"
	if s.cfg.InProcess == nil {
		s.servers = redacted(s.cfg.URL)
	}
	s.dialer.Timeout = s.cfg.ConnectTimeout
	inbox := nats.NewInbox()
	if p := s.cfg.InboxPrefix; p != "" {
		inbox = p + "." + strings.TrimPrefix(inbox, nats.InboxPrefix)
	}
	s.acks = newAcks(inbox+".", s.window) // before the callbacks that use it
	if s.conn, err = nats.Connect(s.cfg.URL, opts...); err != nil {
		return fmt.Errorf("cannot connect to %s: %w", s.servers, err)
	}
	// The callback comes at once, from another goroutine: the first Send should know whether there is
	// a connection, or why there is none.
	select {
	case <-s.known:
	case <-time.After(s.cfg.ConnectTimeout):
	}
	sub, err := s.conn.Subscribe(inbox+".*.*", s.acks.receive)
	if err != nil {
		return fmt.Errorf("cannot subscribe to acknowledgements: %w", err)
	}
	// The window bounds the messages that can arrive; the library's own limit would drop.
	return sub.SetPendingLimits(-1, -1)
}

func (s *Sink) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name("penstock"),
		nats.Timeout(s.cfg.ConnectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		// A wrong password may be corrected on the server.
		nats.IgnoreAuthErrorAbort(),
		// Nothing is kept for later: a message published after its Send reported a failure could overtake
		// others, and would arrive twice.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		// A server that does not read must not block a Send forever.
		nats.FlusherTimeout(s.cfg.AckWait),
		nats.DisconnectErrHandler(s.disconnected),
		nats.ReconnectHandler(s.connected),
		nats.ConnectHandler(s.connected),
		nats.ReconnectErrHandler(s.refused),
		nats.ErrorHandler(s.asyncError),
	}
	if s.cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(s.cfg.InProcess))
	}
	if p := s.cfg.InboxPrefix; p != "" {
		opts = append(opts, nats.CustomInboxPrefix(p))
	}
	opts = append(opts, nats.SetCustomDialer(&s.dialer))
	login, err := s.login()
	if err != nil {
		return nil, err
	}
	if login != nil {
		opts = append(opts, login)
	}
	if s.cfg.TLS != (TLSConfig{}) {
		config, err := s.cfg.TLS.Load()
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(config))
	}
	return opts, nil
}

func (s *Sink) login() (nats.Option, error) {
	c := &s.cfg
	switch {
	case c.CredentialsFile != "":
		if err := readable("credentials_file", c.CredentialsFile); err != nil {
			return nil, err
		}
		return nats.UserCredentials(c.CredentialsFile), nil
	case c.NKeyFile != "":
		if err := readable("nkey_file", c.NKeyFile); err != nil {
			return nil, err
		}
		login, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, field("nkey_file", "holds no user nkey seed", "write the seed that `nk -gen user` printed into it; it begins with SU")
		}
		return login, nil
	case c.User != "":
		return nats.UserInfo(c.User, c.Password), nil
	case c.Token != "":
		return nats.Token(c.Token), nil
	}
	return nil, nil
}

func readable(name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return field(name, fmt.Sprintf("cannot be read (%v)", err), "name a file that this user may read")
	}
	return f.Close()
}

// reconnectDelay doubles from reconnectWait to reconnectMax with the number of
// rounds over all servers.
func reconnectDelay(rounds int) time.Duration {
	return min(reconnectWait<<min(max(rounds-1, 0), 10), reconnectMax)
}

// news is the log level of events that matter for servers elsewhere and are normal for one in this
// process.
func (s *Sink) news() slog.Level {
	if s.cfg.InProcess != nil {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (s *Sink) connected(*nats.Conn) {
	s.trouble.Store(nil)
	s.mute.Store(false)
	s.up.Store(true)
	s.knownOnce.Do(func() { close(s.known) })
	s.log.Log(context.Background(), s.news(), "connected to NATS", "servers", s.servers)
}

func (s *Sink) disconnected(_ *nats.Conn, err error) {
	s.up.Store(false)
	select {
	case <-s.quit:
		return // it is the sink that closes the connection
	default:
	}
	if err == nil {
		err = nats.ErrDisconnected
	}
	s.trouble.Store(&err)
	s.log.Warn("lost the connection to NATS, reconnecting", "servers", s.servers, "error", err)
	// Acknowledgements of messages in flight will not come any more.
	s.acks.failAll(nil, s.unavailable(err))
}

func (s *Sink) refused(_ *nats.Conn, err error) {
	old := s.trouble.Swap(&err)
	s.knownOnce.Do(func() { close(s.known) })
	if old == nil || (*old).Error() != err.Error() {
		s.log.Warn("cannot connect to NATS, still trying", "servers", s.servers, "error", err)
	}
}

// asyncError handles errors of the server that belong to no particular request.
func (s *Sink) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		s.log.Warn("NATS reports an error", "servers", s.servers, "error", err)
		return
	}
	_, quoted, publish := strings.Cut(err.Error(), `Publish to "`)
	subject, _, _ := strings.Cut(quoted, `"`)
	switch {
	case !publish:
		s.trouble.Store(&err)
		s.log.Error("NATS does not let this user receive acknowledgements", "servers", s.servers, "error", err)
	case strings.HasPrefix(subject, "$JS."):
		s.mute.Store(true)
		s.log.Warn("NATS does not let this user ask JetStream", "servers", s.servers, "error", err)
	default:
		// The server does not answer such a message, it only reports an error.
		denied := penstock.WithHint(fmt.Errorf("the NATS user may not publish to %q", subject), "allow it in the server's permissions, or log in as another user")
		s.acks.failAll(func(m *penstock.Message) bool {
			to, err := s.subject.Execute(m)
			return err == nil && to == subject
		}, denied)
	}
}

// unavailable explains why nothing can be sent now: the connection's problem if it is known, or else
// the given error.
func (s *Sink) unavailable(met error) error {
	if p := s.trouble.Load(); p != nil {
		met = *p
	}
	err := fmt.Errorf("not connected to NATS at %s: %w", s.servers, met)
	return penstock.Unavailable(penstock.WithHint(err, "%s", nextStep(met)))
}

func nextStep(err error) string {
	certificate := tlsconfig.Hint(err)
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "check user, password, token, credentials_file or nkey_file; reconnecting"
	case errors.Is(err, nats.ErrPermissionViolation):
		return "allow the user to subscribe to _INBOX.>, or set inbox_prefix to a subject that it may subscribe to"
	case certificate != "":
		return certificate + "; reconnecting"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: remove tls, or turn TLS on there; reconnecting"
	}
	return "check that the server runs and the url is right; reconnecting"
}

// redacted is the list of servers without user, password and token.
func redacted(list string) string {
	servers := strings.Split(list, ",")
	for i, server := range servers {
		u, err := url.Parse(withScheme(strings.TrimSpace(server)))
		if err != nil {
			servers[i] = "nats://?"
			continue
		}
		u.User = nil
		servers[i] = u.String()
	}
	return strings.Join(servers, ",")
}
