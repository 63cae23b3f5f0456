package natsserver

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logger passes the server's log to slog. The server logs much at its start, so a notice becomes
// debug. A fatal error stays an error, because a library must not end the process.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string] // why the server cannot continue
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log.With("component", "nats-server")}
}

// Warnf leaves out that MaxPayload is large: that is intended, and the user of the embedded server
// cannot change it.
func (l *logger) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Maximum payloads over") {
		return
	}
	l.log.Warn(fmt.Sprintf(format, v...))
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Tracef(format string, v ...any)  {}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error(text)
}
