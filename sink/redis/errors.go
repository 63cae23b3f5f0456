package redis

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock"
)

// refused: the server has answered, with an error.
func refused(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered && !aboutAll(err.Error())
}

// aboutAll reports whether an answer is about the server and not about the command or its stream.
func aboutAll(answer string) bool {
	word, rest, _ := strings.Cut(answer, " ")
	switch word {
	case "OOM", "LOADING", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "BUSY", "EXECABORT",
		"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "NOPROTO":
		return true
	case "ERR":
		return strings.HasPrefix(rest, "max number of clients") || strings.HasPrefix(rest, "AUTH") || strings.HasPrefix(rest, "invalid password") ||
			strings.HasPrefix(rest, "unknown command") || strings.HasPrefix(rest, "WAITAOF") || strings.HasPrefix(rest, "DB index")
	}
	return false
}

// stale: after this error the connection is not used again, because replies are missing on it, or
// because the name may lead to another server by now.
func stale(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return err != nil && (!answered || strings.HasPrefix(err.Error(), "READONLY"))
}

// verdict classifies what became of one message for the relay.
func (s *Sink) verdict(ctx context.Context, m *penstock.Message, err error) error {
	stream, _ := s.stream.Execute(m)
	if errors.Is(err, redis.Nil) {
		return penstock.WithHint(fmt.Errorf("there is no stream %q", stream), "create it, for example with XGROUP CREATE … MKSTREAM, or leave out existing_only")
	}
	if !refused(err) {
		return s.explain(ctx, err)
	}
	answer := fmt.Errorf("the Redis server does not add to the stream %q: %w", stream, err)
	switch word, _, _ := strings.Cut(err.Error(), " "); word {
	case "WRONGTYPE":
		return penstock.WithHint(answer, "the name belongs to another kind of value: rename that, or change the template stream")
	case "NOPERM":
		return penstock.WithHint(answer, "give the user the command XADD and this key: ACL SETUSER … +xadd ~%s", stream)
	}
	return answer
}

var (
	errReplica  = errors.New("READONLY it is a replica")
	errNoAnswer = errors.New("the server has not answered")
)

// explain is the Unavailable error for a problem of the server or of the connection to it.
func (s *Sink) explain(ctx context.Context, err error) error {
	if s.gate.Closed() && ctx.Err() != nil {
		return errClosed
	}
	word, rest, _ := strings.Cut(err.Error(), " ")
	hint := "see that the server runs and url names it; the relay tries again by itself"
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case ctx.Err() != nil:
		return penstock.Unavailable(fmt.Errorf("the Redis server at %s has not confirmed the message in time: %w", s.server, context.Cause(ctx)))
	case errors.As(err, &unknown):
		hint = "set tls.ca_file to the authority that signed the server's certificate"
	case errors.As(err, &name):
		hint = "set tls.server_name to a name in the server's certificate"
	case word == "OOM":
		hint = "free memory on the server: raise maxmemory, trim streams that were read, or set max_length; the relay then continues by itself"
	case word == "NOAUTH", word == "WRONGPASS", word == "ERR" && strings.HasPrefix(rest, "AUTH"), word == "ERR" && strings.HasPrefix(rest, "invalid password"):
		hint = "check user and password"
	case word == "READONLY":
		hint = "let url name the server that takes writes"
	case word == "MOVED", word == "ASK", word == "CLUSTERDOWN":
		hint = "the sink knows no sharded clusters: use a server without cluster mode"
	case word == "MISCONF":
		hint = "the server cannot save to its disk: see its log"
	case word == "ERR" && strings.HasPrefix(rest, "WAITAOF"), word == "ERR" && strings.Contains(rest, "'WAITAOF'"):
		hint = "fsync needs Redis 7.2 or Valkey with appendonly yes; without it, appendfsync always on the server has the same effect"
	}
	return penstock.Unavailable(penstock.WithHint(fmt.Errorf("the Redis server at %s: %w", s.server, err), "%s", hint))
}
