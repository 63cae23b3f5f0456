package redis_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/redis"
)

// An error of the server itself, rather than of a message, spends no attempt.
func TestServerThatTakesNothing(t *testing.T) {
	server := testserver.StartRedis(t, "maxmemory-policy noeviction")
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	t.Cleanup(func() { check(t, c.Close()) })
	sink := open(t, redis.Config{URL: "redis://" + server.Address}, nil)
	set := func(name, value string) { check(t, c.ConfigSet(patient(t), name, value).Err()) }

	set("maxmemory", "1")
	unavailable(t, sink, "OOM", "raise maxmemory")
	set("maxmemory", "0")
	confirmed(t, sink)

	port, err := testserver.FreePort() // where no server is
	check(t, err)
	check(t, c.ReplicaOf(patient(t), "127.0.0.1", fmt.Sprint(port)).Err())
	unavailable(t, sink, "READONLY", "let url name the server that takes writes")
	if err := redis.Driver.Reach(patient(t), redis.Config{URL: "redis://" + server.Address}, nil); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("doctor does not see a replica: %v", err)
	}
	check(t, c.ReplicaOf(patient(t), "NO", "ONE").Err())
	confirmed(t, sink)
	check(t, redis.Driver.Reach(patient(t), redis.Config{URL: "redis://" + server.Address}, nil))

	// The key belongs to another kind of value: only messages to it fail, and an attempt is spent.
	check(t, c.Set(patient(t), "taken", "x", 0).Err())
	errs := sink.Send(patient(t), []penstock.Message{message("taken"), message("orders")})
	if errs == nil || errs[0] == nil || errs[1] != nil || penstock.IsUnavailable(errs[0]) || penstock.IsPermanent(errs[0]) {
		t.Errorf("one message to a key that is a string: %v", errs)
	}
}

// A replica has the message, or it is not confirmed.
func TestReplicas(t *testing.T) {
	server := testserver.StartRedis(t)
	sink := open(t, redis.Config{URL: "redis://" + server.Address, Replicas: 1, WaitTimeout: 5 * time.Second}, nil)
	impatient := open(t, redis.Config{URL: "redis://" + server.Address, Replicas: 1, WaitTimeout: 1e6}, nil)
	unavailable(t, impatient, "0 of 1 replicas", "INFO replication")

	host, port, err := net.SplitHostPort(server.Address)
	check(t, err)
	replica := testserver.StartRedis(t, "replicaof "+host+" "+port, "repl-diskless-sync-delay 0")
	eventually(t, sink, func(err error) bool { return err == nil }) // a synchronisation that is under way has no end to wait for
	c := goredis.NewClient(&goredis.Options{Addr: replica.Address})
	defer c.Close()
	if n, err := c.XLen(patient(t), "orders").Result(); err != nil || n == 0 {
		t.Errorf("the replica has %d entries, %v", n, err)
	}
}

// A message is on the disk, and on those of the replicas, or it is not confirmed. This needs Redis 7.2: an older server's
// answer does not confirm anything.
func TestFsync(t *testing.T) {
	server := testserver.StartRedis(t, "appendfsync everysec")
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	defer c.Close()
	cfg := redis.Config{URL: "redis://" + server.Address, Fsync: true, WaitTimeout: 5 * time.Second}
	sink := open(t, cfg, nil)
	if c.Do(patient(t), "WAITAOF", 0, 0, 0).Err() != nil {
		unavailable(t, sink, "WAITAOF", "fsync needs Redis 7.2")
		return
	}
	confirmed(t, sink)
	cfg.WaitTimeout = 1e6
	eventually(t, open(t, cfg, nil), func(err error) bool {
		return penstock.IsUnavailable(err) && strings.Contains(err.Error(), "has not flushed")
	})

	host, port, err := net.SplitHostPort(server.Address)
	check(t, err)
	replica := testserver.StartRedis(t, "replicaof "+host+" "+port, "repl-diskless-sync-delay 0", "appendonly no")
	at := goredis.NewClient(&goredis.Options{Addr: replica.Address})
	defer at.Close()
	cfg = redis.Config{URL: "redis://" + server.Address, Replicas: 1, WaitTimeout: 5 * time.Second}
	eventually(t, open(t, cfg, nil), func(err error) bool { return err == nil }) // it has them in its memory
	cfg.Fsync = true
	flushed := open(t, cfg, nil)
	unavailable(t, flushed, "0 of 1 replicas")
	check(t, at.ConfigSet(patient(t), "appendonly", "yes").Err())
	eventually(t, flushed, func(err error) bool { return err == nil })

	check(t, c.ConfigSet(patient(t), "appendonly", "no").Err())
	unavailable(t, sink, "WAITAOF", "with appendonly yes")
}

// eventually sends messages until one has the verdict that is waited for.
func eventually(t *testing.T, sink *redis.Sink, wanted func(error) bool) {
	t.Helper()
	ctx := patient(t)
	for ctx.Err() == nil {
		var err error
		if errs := sink.Send(ctx, []penstock.Message{message("orders")}); errs != nil {
			err = errs[0]
		}
		if wanted(err) {
			return
		}
	}
	t.Fatal("no message has the verdict")
}

func TestMaxLength(t *testing.T) {
	server := testserver.StartRedis(t, "stream-node-max-entries 10")
	sink := open(t, redis.Config{URL: "redis://" + server.Address, MaxLength: 20}, nil)
	for range 10 {
		for i, err := range sink.Send(patient(t), []penstock.Message{message("orders"), message("orders"), message("orders"), message("orders"), message("orders")}) {
			t.Fatal(i, err)
		}
	}
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	defer c.Close()
	if n, err := c.XLen(patient(t), "orders").Result(); err != nil || n < 20 || n >= 30 {
		t.Errorf("%d entries are kept, %v; want 20 and less than a node more", n, err)
	}
}

// Settings that lose confirmed messages are logged once.
func TestWarnings(t *testing.T) {
	server := testserver.StartRedis(t, "appendonly no", "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	var out bytes.Buffer
	sink := open(t, redis.Config{URL: "redis://" + server.Address}, slog.New(slog.NewTextHandler(&out, nil)))
	confirmed(t, sink)
	for _, want := range []string{"set appendonly yes", "set maxmemory-policy noeviction"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%q is not said once:\n%s", want, out.String())
		}
	}
}

// A Send has one connection, on which it also asks what the server takes. Idle ones are used again, with the memory of their
// Sends, and no message keeps a field of another.
func TestOneConnection(t *testing.T) {
	server := testserver.StartRedis(t)
	sink := open(t, redis.Config{URL: "redis://" + server.Address}, nil)
	many := make([]penstock.Message, 2000)
	for i := range many {
		many[i] = penstock.Message{ID: fmt.Sprint("many-", i), Topic: "many", Payload: []byte("x"), Headers: map[string]string{"a": fmt.Sprint(i), "b": "2", "penstock-id": "a header does not win"}}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	full := penstock.Message{ID: "full", Topic: "orders", Key: "k", CreatedAt: at, Attempt: 3, Headers: map[string]string{"h": "v"}, Payload: []byte("p")}
	bare := penstock.Message{ID: "bare", Topic: "orders", CreatedAt: at, Attempt: 1}
	for _, msgs := range [][]penstock.Message{{message("orders")}, many, {full}, {bare}} {
		if errs := sink.Send(patient(t), msgs); errs != nil {
			t.Fatal(errs)
		}
	}
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	defer c.Close()
	clients, err := c.ClientList(patient(t)).Result()
	if n := strings.Count(clients, "name=penstock"); err != nil || n != 1 {
		t.Errorf("the sink has %d connections, %v:\n%s", n, err, clients)
	}
	entries, err := c.XRange(patient(t), "orders", "-", "+").Result()
	check(t, err)
	for i, want := range map[int]map[string]any{
		1: {"penstock-id": "full", "penstock-topic": "orders", "penstock-created-at": "2026-01-02T02:04:05.000000006Z", "penstock-key": "k", "penstock-attempt": "3", "h": "v", "payload": "p"},
		2: {"penstock-id": "bare", "penstock-topic": "orders", "penstock-created-at": "2026-01-02T02:04:05.000000006Z", "payload": ""},
	} {
		if !maps.Equal(entries[i].Values, want) {
			t.Errorf("entry %d is %v, want %v", i, entries[i].Values, want)
		}
	}
	last, err := c.XRevRangeN(patient(t), "many", "+", "-", 1).Result()
	if check(t, err); last[0].Values["penstock-id"] != "many-1999" || last[0].Values["a"] != "1999" || len(last[0].Values) != 6 {
		t.Errorf("the last of many is %v", last)
	}
}

func unavailable(t *testing.T, sink *redis.Sink, want ...string) {
	t.Helper()
	errs := sink.Send(patient(t), []penstock.Message{message("orders"), message("orders")})
	if errs == nil {
		t.Fatal("messages are confirmed that the server does not take")
	}
	for _, err := range errs {
		if !penstock.IsUnavailable(err) {
			t.Errorf("%v is not Unavailable", err)
		}
		for _, part := range want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	}
}

func confirmed(t *testing.T, sink *redis.Sink) {
	t.Helper()
	if errs := sink.Send(patient(t), []penstock.Message{message("orders")}); errs != nil {
		t.Fatal(errs)
	}
}

func message(topic string) penstock.Message {
	return penstock.Message{ID: "id", Topic: topic, Payload: []byte("x")}
}

func open(t *testing.T, cfg redis.Config, log *slog.Logger) *redis.Sink {
	t.Helper()
	s, err := redis.Open(cfg, log)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close(patient(t))) })
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}
