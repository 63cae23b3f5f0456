package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay"
)

// WebhookConfig is one run of webhook. The endpoint is made for it: SinkURL is not
// used.
type WebhookConfig struct {
	Setup
	Messages int           `help:"messages per backlog" range:"1.."`
	Payload  int           `help:"bytes of each payload" range:"20..67108864"`
	Keys     int           `help:"different keys, and requests at a time" range:"1..4096"`
	Delay    time.Duration `help:"how long the endpoint takes for each request" range:"0s.."`
	Repeat   int           `help:"pairs; the median counts" range:"1.."`
}

// WebhookResult is the result of a run. Rates are requests per second, medians.
type WebhookResult struct {
	// Limit is the rate at which nothing but the endpoint takes time; 0 if that takes none.
	Limit  float64 `json:"limit"`
	Client float64 `json:"client"`
	Relay  float64 `json:"relay"`
	Pairs
	// ClientCPU and RelayCPU are of the last pair; the endpoint is in this process.
	ClientCPU CPU   `json:"client_cpu"`
	RelayCPU  CPU   `json:"relay_cpu"`
	Check     Check `json:"check"` // of the relay's requests, as the endpoint saw them
}

// DefaultWebhook is measured unless flags say otherwise.
var DefaultWebhook = WebhookConfig{Messages: 40_000, Payload: 200, Keys: 200, Delay: 20 * time.Millisecond, Repeat: 1}

// Webhook drains a backlog to an endpoint that takes its time, and compares with
// the same requests from memory.
func Webhook(ctx context.Context, cfg WebhookConfig) (result WebhookResult, err error) {
	r := &webhookRun{rig: newRig(cfg.Setup), cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.Payload}}
	r.Limit = over(float64(cfg.Keys), cfg.Delay.Seconds())
	rates, err := inTurns(cfg.Repeat, func() (float64, error) { return r.client(ctx) }, func() (float64, error) { return r.relay(ctx) })
	r.Client, r.Relay, r.Pairs = median(rates[0]), median(rates[1]), pairsOf(ratios(rates[1], rates[0]))
	return r.WebhookResult, err
}

type webhookRun struct {
	*rig
	WebhookResult
	cfg  WebhookConfig
	load load
}

// client posts from memory, with a goroutine and a connection per key.
func (r *webhookRun) client(ctx context.Context) (rate float64, err error) {
	r.progress("posting from memory")
	e := startEndpoint(r.cfg.Delay, r.cfg.Keys)
	defer e.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: r.cfg.Keys}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(ctx context.Context, n int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(r.load.messages(n, 1)[0].Payload))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", r.Name, n))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusNoContent {
			err = fmt.Errorf("the endpoint answered %s", resp.Status)
		}
		return err
	}
	e.ledger.expect(r.cfg.Messages)
	cpu := startCPU()
	var next atomic.Int64
	if err := together(ctx, r.cfg.Keys, func(ctx context.Context, _ int) error {
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= r.cfg.Messages {
				return nil
			}
			if err := post(ctx, n); err != nil {
				return fmt.Errorf("posting from memory: %w", err)
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}
	rate = float64(r.cfg.Messages) / time.Since(cpu.at).Seconds()
	r.ClientCPU = cpu.stop()
	return rate, nil
}

// relay drains a backlog that is there before.
func (r *webhookRun) relay(ctx context.Context) (rate float64, err error) {
	return rate, r.inNewOutbox(ctx, func(ctx context.Context) error {
		if err := r.publish(ctx, r.load, r.cfg.Messages, "the relay"); err != nil {
			return err
		}
		e := startEndpoint(r.cfg.Delay, r.cfg.Keys)
		defer e.Close()
		sink, err := r.OpenSink(fmt.Sprintf("%s#allow_private=true&concurrency=%d", e.URL, r.cfg.Keys))
		if err != nil {
			return err
		}
		defer sink.Close(context.WithoutCancel(ctx))
		r.progress("the relay drains the backlog")
		e.ledger.expect(r.cfg.Messages)
		cpu := startCPU()
		stop, err := r.startRelay(ctx, relaying{sink: sink, Options: relay.Options{Limits: relay.Limits{MaxBatch: 1, Senders: r.cfg.Keys}}}) // as config gives a webhook
		if err != nil {
			return err
		}
		at, err := e.ledger.await(ctx)
		rate = float64(r.cfg.Messages) / at.Sub(cpu.at).Seconds()
		r.RelayCPU = cpu.stop()
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		r.Check, err = e.ledger.check("endpoint", r.cfg.Messages, "the relay")
		return err
	})
}

// endpoint is an HTTP server that takes its time to answer and notes the requests.
type endpoint struct {
	*httptest.Server
	ledger *ledger
}

func startEndpoint(delay time.Duration, keys int) endpoint {
	l := newLedger(keys, nil)
	return endpoint{httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		payload, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 64<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		time.Sleep(delay)
		l.arrived(payload)
		w.WriteHeader(http.StatusNoContent)
	})), l}
}
