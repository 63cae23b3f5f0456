// Package web serves HTTP: on the loopback without credentials, elsewhere only to clients with a credential. Nothing is read or
// served before that is checked, and requests are limited in time and size. A page of another site can change nothing. It can
// read nothing either, even by a name that it points to this address.
package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// Credential grants access to clients that know its Secret.
type Credential struct {
	// User has the Secret as a password (basic auth); without one it is a bearer token.
	User   string
	Secret string
	// Name is what From returns to the handler: a role, for example, or the outboxes that the client may write to.
	Name string
}

// Options of Serve.
type Options struct {
	Listen string // an address such as 127.0.0.1:8080
	// Credentials grant access to clients that have one of them. Without any, Listen must be a
	// loopback address.
	Credentials []Credential
	// Open serves every client at any address: metrics, which have no secrets.
	Open bool
	// MaxBody is the most bytes of a request's body (default 1 MiB); beyond it reading fails with *http.MaxBytesError.
	MaxBody int64
	// ReadTimeout is for a whole request, WriteTimeout from its header to the answer's end (default 30 s, 60 s).
	ReadTimeout  time.Duration
	WriteTimeout time.Duration
	Logger       *slog.Logger // default: slog.Default()
}

// Serve begins to serve and returns a server. Its Addr is the address; with port 0, that has the chosen port. Drain it or
// close it.
func Serve(o Options, handler http.Handler) (*http.Server, error) {
	o.MaxBody = cmp.Or(o.MaxBody, 1<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	address, err := o.address()
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Addr: listener.Addr().String(), Handler: o.guard(http.MaxBytesHandler(handler, o.MaxBody)), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: cmp.Or(o.ReadTimeout, 30*time.Second),
		WriteTimeout: cmp.Or(o.WriteTimeout, time.Minute), IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	go func() {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			o.Logger.Error("no longer served", "address", server.Addr, "err", err)
		}
	}()
	return server, nil
}

// Drain accepts no more requests and returns when running ones are answered. Requests that still run when ctx ends
// are cut off.
func Drain(ctx context.Context, server *http.Server) error {
	err := server.Shutdown(ctx)
	if err != nil {
		_ = server.Close()
	}
	return err
}

// Check returns the errors of Serve that are known without listening.
func (o *Options) Check() error {
	_, err := o.address()
	return err
}

// address is the address to listen at, if that is permitted.
func (o *Options) address() (*net.TCPAddr, error) {
	address, err := net.ResolveTCPAddr("tcp", o.Listen)
	if err != nil || o.Listen == "" {
		return nil, &penstock.FieldError{Field: "listen", Problem: fmt.Sprintf("is %q, which is not an address", o.Listen), Hint: "write an address and a port, as in 127.0.0.1:8080"}
	}
	if slices.ContainsFunc(o.Credentials, func(c Credential) bool { return c.Secret == "" }) {
		return nil, &penstock.FieldError{Field: "token", Problem: "is empty", Hint: "take a long random text, as from openssl rand -hex 32"}
	}
	if !o.Open && len(o.Credentials) == 0 && !address.IP.IsLoopback() { // not an IP: all of them
		return nil, &penstock.FieldError{Field: "listen", Problem: fmt.Sprintf("is %q, which other machines reach, and no token is set", o.Listen),
			Hint: "set a token, or listen on 127.0.0.1"}
	}
	return address, nil
}

type nameKey struct{}

// From is the Name of a request's credential; empty if none was required.
func From(r *http.Request) string {
	name, _ := r.Context().Value(nameKey{}).(string)
	return name
}

// guard passes permitted requests to next.
func (o *Options) guard(next http.Handler) http.Handler {
	if o.Open {
		return next
	}
	next = http.NewCrossOriginProtection().Handler(next)
	if len(o.Credentials) == 0 {
		return localOnly(next)
	}
	challenge := `Bearer realm="penstock"`
	if slices.ContainsFunc(o.Credentials, func(c Credential) bool { return c.User != "" }) {
		challenge = `Basic realm="penstock", charset="UTF-8"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := o.identify(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", challenge)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nameKey{}, name)))
	})
}

// localOnly answers only requests that address this machine by its own name. Another name is another site's: its pages
// could otherwise read the pages that are served here.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.Trim(host, "[]")
		if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "without a token only requests to localhost or 127.0.0.1 are accepted: set a token to serve other hosts", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var errNoCredential = errors.New("no token or password came with the request, or a wrong one")

// identify takes the same time whichever credential matches, and however much of it matches.
func (o *Options) identify(r *http.Request) (name string, err error) {
	user, secret, basic := r.BasicAuth()
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); !basic && strings.EqualFold(scheme, "Bearer") {
		user, secret = "", strings.TrimSpace(token)
	} else if !basic || user == "" {
		return "", errNoCredential
	}
	err = errNoCredential
	for _, c := range o.Credentials {
		if equal(user, c.User)&equal(secret, c.Secret) == 1 {
			name, err = c.Name, nil
		}
	}
	return name, err
}

func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}
