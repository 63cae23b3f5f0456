package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay"
)

// WebhookConfig is one run of webhook. The endpoint is made for it: SinkURL is not
// used.
type WebhookConfig struct {
	Setup
	Messages     int // per drain
	PayloadBytes int
	Keys         int           // different ones, and how many requests run at once
	Delay        time.Duration // of each answer
	Repeat       int           // pairs
}

// WebhookResult is the result of a run. Rates are requests per second.
type WebhookResult struct {
	Messages     int     `json:"messages"`
	PayloadBytes int     `json:"payload_bytes"`
	Keys         int     `json:"keys"`
	DelayMS      float64 `json:"delay_ms"`
	// Limit is what Keys requests at a time come to if nothing but the delay takes
	// time; 0 without one.
	Limit float64 `json:"limit"`

	// Client: net/http posts the same messages from memory, one goroutine per key.
	Client  float64   `json:"client"`
	Relay   float64   `json:"relay"`
	Ratio   float64   `json:"ratio"`
	Ratios  []float64 `json:"ratios"`
	Clients []float64 `json:"clients"`
	Relays  []float64 `json:"relays"`

	// ClientCPU and RelayCPU are of the last pair; the endpoint is in this process.
	ClientCPU CPU   `json:"client_cpu"`
	RelayCPU  CPU   `json:"relay_cpu"`
	Check     Check `json:"check"` // of the relay's requests, as the endpoint saw them
}

// DefaultWebhook is measured unless flags say otherwise.
var DefaultWebhook = WebhookConfig{Messages: 40_000, PayloadBytes: 200, Keys: 200, Delay: 20 * time.Millisecond, Repeat: 1}

// Validate refuses values that cannot be measured.
func (c WebhookConfig) Validate() error {
	if c.Messages < 1 || c.Keys < 1 || c.Keys > 4096 || c.Repeat < 1 {
		return errors.New("it takes at least one message and one pair, and 1 to 4096 keys")
	}
	return validNumbered(c.PayloadBytes)
}

// Webhook drains a backlog to an endpoint that takes its time, and compares with
// the same requests from memory.
func Webhook(ctx context.Context, cfg WebhookConfig) (result WebhookResult, err error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return result, err
	}
	defer remove()
	result = WebhookResult{Messages: cfg.Messages, PayloadBytes: cfg.PayloadBytes, Keys: cfg.Keys, DelayMS: max(cfg.Delay, 0).Seconds() * 1000}
	result.Limit = over(float64(cfg.Keys), max(cfg.Delay, 0).Seconds())
	r := &webhookRun{rig: rig, cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.PayloadBytes}}
	for i := range cfg.Repeat {
		r.round = fmt.Sprintf("pair %d of %d", i+1, cfg.Repeat)
		client, err := r.client(ctx, &result)
		if err != nil {
			return result, fmt.Errorf("posting from memory: %w", err)
		}
		relayed, err := r.relay(ctx, &result)
		if err != nil {
			return result, err
		}
		result.Clients, result.Relays = append(result.Clients, client), append(result.Relays, relayed)
		result.Ratios = append(result.Ratios, relayed/client)
	}
	result.Client, result.Relay, result.Ratio = median(result.Clients), median(result.Relays), median(result.Ratios)
	return result, nil
}

type webhookRun struct {
	*rig
	cfg   WebhookConfig
	load  load
	round string
}

// client posts from memory, with a goroutine and a connection per key.
func (r *webhookRun) client(ctx context.Context, result *WebhookResult) (rate float64, err error) {
	r.Progress(r.round + ": posting from memory")
	e, err := startEndpoint(r.cfg.Delay, r.cfg.Keys)
	if err != nil {
		return 0, err
	}
	defer e.stop()
	transport := &http.Transport{MaxIdleConnsPerHost: r.cfg.Keys}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(ctx context.Context, n int) error {
		msg := r.load.messages(n, 1)[0]
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(msg.Payload))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", r.Outbox, n))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close(), unless(resp.StatusCode == http.StatusNoContent, "the endpoint answered %s", resp.Status))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.ledger.expect(r.cfg.Messages)
	cpu, start := startCPU(), time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range r.cfg.Keys {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= r.cfg.Messages {
					return
				}
				if err := post(ctx, n); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	rate = float64(r.cfg.Messages) / time.Since(start).Seconds()
	result.ClientCPU = cpu.stop()
	return rate, nil
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// relay drains a backlog that is there before.
func (r *webhookRun) relay(ctx context.Context, result *WebhookResult) (rate float64, err error) {
	err = r.inNewOutbox(ctx, func(ctx context.Context) error {
		r.Progress(fmt.Sprintf("%s: publishing %d messages", r.round, r.cfg.Messages))
		if err := r.publish(ctx, r.load, r.cfg.Messages); err != nil {
			return fmt.Errorf("publishing the backlog: %w", err)
		}
		e, err := startEndpoint(r.cfg.Delay, r.cfg.Keys)
		if err != nil {
			return err
		}
		defer e.stop()
		sink, err := r.OpenSink(fmt.Sprintf("%s#allow_private=true&concurrency=%d", e.url, r.cfg.Keys))
		if err != nil {
			return err
		}
		defer sink.Close(context.WithoutCancel(ctx))
		r.Progress(r.round + ": the relay drains the backlog")
		e.ledger.expect(r.cfg.Messages)
		cpu, start := startCPU(), time.Now()
		stop, err := r.startRelay(ctx, relaying{sink: sink, Options: relay.Options{Limits: relay.Limits{MaxBatch: 1, Senders: r.cfg.Keys}}}) // as config gives a webhook
		if err != nil {
			return err
		}
		at, err := e.ledger.await(ctx)
		if err != nil {
			return errors.Join(err, stop())
		}
		rate = float64(r.cfg.Messages) / at.Sub(start).Seconds()
		result.RelayCPU = cpu.stop()
		if err := stop(); err != nil {
			return err
		}
		result.Check = e.ledger.check("endpoint", r.cfg.Messages)
		if !result.Check.OK() {
			return &CheckError{When: r.round, Check: result.Check}
		}
		return nil
	})
	return rate, err
}

// endpoint is an HTTP server that takes its time to answer and notes the requests.
type endpoint struct {
	url    string
	ledger *ledger
	server *http.Server
	ended  chan struct{}
}

func startEndpoint(delay time.Duration, keys int) (*endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &endpoint{url: "http://" + listener.Addr().String() + "/hook", ledger: newLedger(keys, nil), ended: make(chan struct{})}
	e.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		payload, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 64<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		time.Sleep(delay)
		e.ledger.answered(payload)
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() {
		defer close(e.ended)
		_ = e.server.Serve(listener)
	}()
	return e, nil
}

func (e *endpoint) stop() {
	_ = e.server.Close()
	<-e.ended
}
