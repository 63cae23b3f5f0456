package metrics

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock/penstock/internal/web"
)

// Handler serves three paths:
//
//   - /metrics has these metrics, and those of the Go runtime and the process
//   - /healthz answers 200 while the process runs
//   - /readyz answers 200, or 503 with the Problems if there are any
func (m *Metrics) Handler() http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 8, Timeout: m.o.StatusTimeout + 5*time.Second,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(m.o.Logger.Handler(), slog.LevelError)}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, r, "healthy", nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, r, "ready", m.Problems()) })
	return mux
}

// answer writes a condition as text, or as JSON if the client accepts that.
func answer(w http.ResponseWriter, r *http.Request, condition string, problems []Problem) {
	code := http.StatusOK
	if len(problems) > 0 {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{condition: len(problems) == 0, "problems": append([]Problem{}, problems...)})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if len(problems) == 0 {
		fmt.Fprintln(w, condition)
		return
	}
	fmt.Fprintln(w, "not "+condition)
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
}

// Serve starts a server of the Handler at an address such as 127.0.0.1:9464, and returns it. Close ends it. It returns an
// error if it cannot listen there.
func (m *Metrics) Serve(address string) (*http.Server, error) {
	server, err := web.Serve(web.Options{Listen: address, Open: true, ReadTimeout: 5 * time.Second,
		WriteTimeout: m.o.StatusTimeout + 15*time.Second, Logger: m.o.Logger}, m.Handler())
	if err == nil {
		m.o.Logger.Info("serving metrics", "url", "http://"+server.Addr+"/metrics")
	}
	return server, err
}
