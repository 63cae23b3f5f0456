package nats

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
)

// The shortcut for the usual answer must never confirm anything that the complete parser would
// not.
func FuzzVerdict(f *testing.F) {
	for _, s := range []string{
		`{"stream":"S","seq":1}`, `{"stream":"S","domain":"d","seq":1}`, `{"stream":"S","seq":1,"duplicate": true}`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`,
		`{"stream":"S","seq":0,"error":{"code":400}}`, `{"stream":"error","seq":3}`, `{"stream":"S"}`, `{"stream":"S","seq":0}`, ``, `{`, `null`, `{"stream":"`,
		`{"stream":"S","seq":1,"\u0065rror":{"code":400}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if verdict(&nats.Msg{Data: data}, new(streams)) != nil {
			return
		}
		var answer struct {
			Error  any    `json:"error"`
			Stream string `json:"stream"`
			Seq    uint64 `json:"seq"`
		}
		if err := json.Unmarshal(data, &answer); err != nil || answer.Error != nil || answer.Stream == "" || answer.Seq == 0 {
			t.Errorf("%q confirms a message (%v)", data, err)
		}
	})
}

func TestVerdict(t *testing.T) {
	for in, want := range map[string]func(error) bool{
		`{"stream":"S","seq":1}`:                   func(err error) bool { return err == nil },
		`{"stream":"S","domain":"hub","seq":7}`:    func(err error) bool { return err == nil },
		`{"stream":"S","seq":1,"duplicate": true}`: func(err error) bool { return err == nil },
		`{"seq":9,"stream":"S"}`:                   func(err error) bool { return err == nil },
		`{"stream":"error","seq":3}`:               func(err error) bool { return err == nil },
		`{"stream":"S","seq":0}`:                   func(err error) bool { return err != nil },
		`+ACK`:                                     func(err error) bool { return err != nil },
		`{"error":{"code":503,"err_code":10023}}`:  penstock.IsUnavailable,
		`{"error":{"code":503,"err_code":10999}}`:  penstock.IsUnavailable,
		`{"error":{"code":400,"err_code":10054}}`:  penstock.IsPermanent,
		`{"error":{"code":400,"err_code":10097}}`:  penstock.IsPermanent,
		`{"error":{"code":429,"err_code":10167}}`:  retriesLater,
		`{"error":{"code":409,"err_code":10158}}`:  partly,
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`: func(err error) bool {
			return penstock.IsUnavailable(err) && !partly(err)
		},
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"}}`: partly,
		`{"error":{"code":503,"err_code":10077,"description":"message too large"}}`:                     penstock.IsPermanent,
	} {
		if err := verdict(&nats.Msg{Data: []byte(in)}, new(streams)); !want(err) {
			t.Errorf("%s: %v", in, err)
		}
	}
	unanswered := &nats.Msg{Header: nats.Header{"Status": {"503"}}}
	if err := verdict(unanswered, new(streams)); err != error(errNoStream) {
		t.Errorf("no responders: %v", err)
	}
}

func partly(err error) bool {
	_, later := penstock.RetryDelay(err)
	return later && penstock.IsUnavailable(err)
}

// A full stream counts as the whole broker as long as no other stream has answered.
func TestFullStreamAmongOthers(t *testing.T) {
	full := &nats.Msg{Data: []byte(`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"A","seq":0}`)}
	var seen streams
	for _, other := range []struct {
		answer string
		partly bool
	}{{`{"stream":"A","seq":1}`, false}, {`{"seq":1,"stream":"A"}`, false}, {`{"stream":"B","seq":1}`, true}, {`{"stream":"A","seq":2}`, true}} {
		if err := verdict(&nats.Msg{Data: []byte(other.answer)}, &seen); err != nil {
			t.Fatal(err)
		}
		if err := verdict(full, &seen); !penstock.IsUnavailable(err) || partly(err) != other.partly {
			t.Errorf("after %s: %v, of a part of the broker: %v", other.answer, err, partly(err))
		}
	}
}

func retriesLater(err error) bool {
	_, later := penstock.RetryDelay(err)
	return later && !penstock.IsPermanent(err) && !penstock.IsUnavailable(err)
}

// A valid subject is one that the server accepts, without spaces, control characters and the
// server's own subjects.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"a", "a.b", "", ".", "a..b", "*", ">", "a.*", "a*", "a.>b", "a b", "ü.ß", "$JS.API.INFO", "$KV.b.k", "$JS", "a\x00b", "\u00a0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		valid := checkSubject(s) == nil
		if valid && !server.IsValidPublishSubject(s) {
			t.Errorf("%q is accepted, not by the server", s)
		}
		if valid && (strings.HasPrefix(s, "$JS.") || strings.HasPrefix(s, "$SYS.")) {
			t.Errorf("%q is accepted", s)
		}
		printable := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
		if !valid && printable && s != "" && s[0] != '$' && server.IsValidPublishSubject(s) {
			t.Errorf("%q is refused, not by the server", s)
		}
	})
}

// An acknowledgement that comes after its Send has returned, or a second time, confirms nothing
// and frees no room.
func TestLateAcknowledgement(t *testing.T) {
	w := newWindow(10, 1<<20)
	a := newAcks("_INBOX.x.", w)
	ack := func(reply string) { a.receive(&nats.Msg{Subject: reply, Data: []byte(`{"stream":"S","seq":1}`)}) }
	send := func() (*flight, []string) {
		f := a.begin(make([]penstock.Message, 2))
		n, err := w.take(t.Context(), nil, f.msgs)
		if err != nil || n != 2 {
			t.Fatal(n, err)
		}
		a.reserve(f, n)
		return f, a.replies(f, 0, 2, nil)
	}
	first, replies := send()
	ack(replies[0])
	ack(replies[0])
	lost := penstock.Unavailable(context.DeadlineExceeded)
	if errs := a.end(first, lost); errs[0] != nil || errs[1] != lost {
		t.Errorf("one acknowledged, one not: %v", errs)
	}
	second, _ := send()
	ack(replies[1]) // the first flight's
	ack(replies[0])
	for _, junk := range []string{"", "_INBOX.x.", "_INBOX.x.1", "_INBOX.x..", "_INBOX.x.-1.0", "_INBOX.x.2.zzzz", "_INBOX.x.2.99999999999999", "other.2.0"} {
		ack(junk)
	}
	if got := second.unanswered(); got != 2 {
		t.Errorf("the second Send has %d messages without an answer, want 2", got)
	}
	a.end(second, lost)
	if w.messages != 10 || w.bytes != 1<<20 {
		t.Errorf("the window has room for %d messages and %d bytes after all Sends", w.messages, w.bytes)
	}
}

// An aborted Send gives back its room, wherever it was.
func TestAbortGivesRoomBack(t *testing.T) {
	w := newWindow(10, 1<<20)
	a := newAcks("i.", w)
	f := a.begin(make([]penstock.Message, 6))
	for _, abort := range []bool{false, true, false} {
		n, err := w.take(t.Context(), nil, f.msgs[f.taken:f.taken+2])
		if err != nil {
			t.Fatal(err)
		}
		if abort { // between taking room and noting it
			a.failAll(nil, errClosed)
		}
		a.reserve(f, n)
	}
	a.end(f, nil)
	if w.messages != 10 || w.bytes != 1<<20 {
		t.Errorf("room for %d messages and %d bytes, want all", w.messages, w.bytes)
	}
}

// Many takers and random sizes: never too much is given out, and no taker is forgotten.
func TestWindow(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const messages, bytes = 20, 20_000
	w := newWindow(messages, bytes)
	var (
		mu         sync.Mutex
		out, outBy int
		takers     sync.WaitGroup
	)
	for i := range 8 {
		takers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			msgs := make([]penstock.Message, 300)
			for i := range msgs {
				msgs[i].Payload = make([]byte, rng.IntN(3000))
			}
			msgs[rng.IntN(len(msgs))].Payload = make([]byte, 2*bytes) // more than the window
			for len(msgs) > 0 {
				n, err := w.take(t.Context(), nil, msgs[:min(len(msgs), 1+rng.IntN(10))])
				if err != nil {
					t.Error(err)
					return
				}
				size := 0
				for i := range msgs[:n] {
					size += footprint(&msgs[i])
				}
				mu.Lock()
				out, outBy = out+n, outBy+size
				if out > messages || (outBy > bytes && outBy > 3*bytes) {
					t.Errorf("%d messages of %d bytes are out", out, outBy)
				}
				mu.Unlock()
				mu.Lock()
				out, outBy = out-n, outBy-size
				mu.Unlock()
				w.give(n, size)
				msgs = msgs[n:]
			}
		})
	}
	takers.Wait()
	if w.messages != messages || w.bytes != bytes {
		t.Errorf("room for %d messages and %d bytes is left, want all", w.messages, w.bytes)
	}
}
