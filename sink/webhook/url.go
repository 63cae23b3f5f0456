package webhook

import (
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
)

// ParseURL reads a Config from one line, for a command line:
//
//	https://api.example.com/hooks/{topic}?tenant=7#concurrency=64&content_type=application/json
//
// Everything before the # is the endpoint's URL, with its query. Options are in the
// fragment, because a request does not carry it. They are the fields of the YAML
// form, those of tls with the prefix "tls."; lists are separated by commas. Secrets
// and headers must be in the YAML form, because other users of the machine can read
// command lines. The result has its defaults set and is valid. Errors do not quote
// the URL.
func ParseURL(u string) (Config, error) {
	target, options, _ := strings.Cut(u, "#")
	values, err := sinkurl.Parse(options)
	if err != nil {
		return Config{}, err
	}
	for name := range values {
		if name == "secrets" || name == "headers" || strings.HasPrefix(name, "headers.") {
			return Config{}, field(name, "cannot be given in a URL", "write it into the configuration file, as ${VARIABLE} or file:PATH")
		}
	}
	return sinkurl.Read(Config{URL: target}, options, "a webhook URL")
}
