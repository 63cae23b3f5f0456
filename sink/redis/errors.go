package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

const (
	checkLogin = "check user and password"
	noCluster  = "the sink knows no sharded clusters: use a server without cluster mode"
	noFsync    = "fsync needs Redis 7.2 or later, or Valkey, with appendonly yes; without it, appendfsync always on the server has the same effect"
)

// ofServer has the beginnings of answers that are about the server and not about the command or its
// stream, with the next step for each.
var ofServer = [][2]string{
	{"OOM ", "free memory on the server: raise maxmemory, trim streams that were read, or set max_length; the relay then continues"},
	{"READONLY ", "let url name the server that takes writes"}, {"MISCONF ", "the server cannot save to its disk: see its log"},
	{"NOAUTH ", checkLogin}, {"WRONGPASS ", checkLogin}, {"ERR AUTH", checkLogin}, {"ERR invalid password", checkLogin},
	{"MOVED ", noCluster}, {"ASK ", noCluster}, {"CLUSTERDOWN ", noCluster}, {"TRYAGAIN ", noCluster},
	{"ERR WAITAOF", noFsync}, {"ERR unknown command 'WAITAOF'", noFsync}, {"ERR unknown command", ""},
	{"LOADING ", ""}, {"MASTERDOWN ", ""}, {"NOREPLICAS ", ""}, {"BUSY ", ""}, {"EXECABORT ", ""}, {"NOPROTO ", ""}, {"ERR max number of clients", ""}, {"ERR DB index", ""},
}

func aboutServer(err error) (hint string, yes bool) {
	for _, a := range ofServer {
		if strings.HasPrefix(err.Error(), a[0]) {
			return a[1], true
		}
	}
	return "", false
}

// refused: the server has answered, with an error about the command.
func refused(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	_, all := aboutServer(err)
	return answered && !all
}

// stale: after this error the connection is not used again, because replies are missing on it, or
// because the name may lead to another server by now.
func stale(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return err != nil && (!answered || strings.HasPrefix(err.Error(), "READONLY"))
}

// verdict classifies the result of one message for the relay.
func (s *Sink) verdict(ctx context.Context, m *penstock.Message, err error) error {
	stream, _ := s.stream.Execute(m)
	answer := fmt.Errorf("the Redis server does not add to the stream %q: %w", stream, err)
	switch word, _, _ := strings.Cut(err.Error(), " "); {
	case errors.Is(err, redis.Nil):
		return penstock.WithHint(fmt.Errorf("there is no stream %q", stream), "create it, for example with XGROUP CREATE … MKSTREAM, or leave out existing_only")
	case !refused(err):
		return s.explain(ctx, err)
	case word == "WRONGTYPE":
		return penstock.WithHint(answer, "the name belongs to another kind of value: rename that, or change the template stream")
	case word == "NOPERM":
		return penstock.WithHint(answer, "give the user the command XADD and this key: ACL SETUSER … +xadd ~%s", stream)
	}
	return answer
}

var errNoAnswer = errors.New("the server has not answered")

// explain is the Unavailable error for a problem of the server or of the connection to it.
func (s *Sink) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return penstock.Unavailable(fmt.Errorf("the Redis server at %s has not confirmed the message in time: %w", s.options.Addr, context.Cause(ctx)))
	}
	hint, _ := aboutServer(err)
	hint = cmp.Or(hint, tlsconfig.Hint(err), "see that the server runs and url names it; the relay tries again")
	return penstock.Unavailable(penstock.WithHint(fmt.Errorf("the Redis server at %s: %w", s.options.Addr, err), "%s", hint))
}
