package terminal

import (
	"errors"
	"io"
	"log/slog"
)

// NewLogger writes to stderr according to --log-format and --log-level.
func NewLogger(stderr io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, Usage(errors.New("--log-level: use debug, info, warn or error"))
	}
	options := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, options)), nil
	case "json":
		options.ReplaceAttr = inSeconds
		return slog.New(slog.NewJSONHandler(stderr, options)), nil
	}
	return nil, Usage(errors.New("--log-format: use text or json"))
}

// inSeconds names the unit of a duration, which JSON would show as a bare number of
// nanoseconds: after=1.5s becomes "after_seconds":1.5.
func inSeconds(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.Float64(attr.Key+"_seconds", attr.Value.Duration().Seconds())
	}
	return attr
}
