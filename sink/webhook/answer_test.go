package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

func TestStatuses(t *testing.T) {
	kinds := map[string][]int{
		"delivered": {200, 201, 202, 204, 299},
		"permanent": {300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 407, 409, 410, 411, 412, 413, 414, 415, 417, 422, 431, 451, 499},
		"retry":     {408, 425, 429, 500, 501, 502, 503, 504, 507, 599},
	}
	for want, statuses := range kinds {
		for _, status := range statuses {
			synctest.Test(t, func(t *testing.T) {
				s := piped(t, Config{}, answering(reply(status)))
				err := one(t, s, message("m", ""))
				wantKind(t, fmt.Sprint(status), err, want)
				var answer *StatusError
				if want != "delivered" && (!errors.As(err, &answer) || answer.Status != status || !strings.Contains(err.Error(), fmt.Sprint(status))) {
					t.Errorf("%d: %v", status, err)
				}
			})
		}
	}
}

func TestRetryStatuses(t *testing.T) {
	for status, want := range map[int]string{404: "retry", 409: "retry", 410: "permanent", 429: "retry"} {
		synctest.Test(t, func(t *testing.T) {
			s := piped(t, Config{RetryStatuses: []int{404, 409}}, answering(reply(status)))
			wantKind(t, fmt.Sprint(status), one(t, s, message("m", "")), want)
		})
	}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			status int
			value  string
			want   string
		}{
			{429, "5", "unavailable"},
			{503, " 120 ", "retry after 2m0s"},
			{500, "1", "retry after 1s"},
			{429, "0", "retry"},
			{429, "-5", "retry"},
			{429, "1.5", "retry"},
			{429, "soon", "retry"},
			{429, "", "retry"},
			{429, "86400", "unavailable"},
			{429, strings.Repeat("9", 400), "unavailable"},
			{503, strings.Repeat("9", 400), "retry after 1h0m0s"},
			{503, time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat), "retry after 1m30s"},
			{503, time.Now().Add(90 * time.Second).UTC().Format(time.RFC850), "retry after 1m30s"},
			{503, time.Now().AddDate(9, 0, 0).UTC().Format(http.TimeFormat), "retry after 1h0m0s"},
			{503, time.Now().Add(-time.Second).UTC().Format(http.TimeFormat), "retry"},
			{400, "5", "permanent"},
			{301, "5", "permanent"},
		} {
			s := piped(t, Config{}, answering(reply(c.status, "Retry-After: "+c.value)))
			wantKind(t, fmt.Sprintf("%d, %.40s", c.status, c.value), one(t, s, message("m", "")), c.want)
		}
	})
}

// A redirect is an answer like others: nothing is sent to its target. The error names only the
// host, because the rest may be a token.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for location, host := range map[string]string{
		"https://elsewhere.test/hooks?token=hunter2":    " to elsewhere.test,",
		"https://app:hunter2@elsewhere.test:8443/hooks": " to elsewhere.test:8443,",
		"/hunter2":  ", a redirect,",
		"http://[:": ", a redirect,",
	} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			s := piped(t, Config{}, answering(func(req *http.Request, out io.Writer) {
				requests++
				reply(307, "Location: "+location)(req, out)
			}))
			err := one(t, s, message("m", ""))
			wantKind(t, location, err, "permanent")
			if requests != 1 || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %d requests, %v", location, requests, err)
			}
		})
	}
}

func TestExcerpt(t *testing.T) {
	const token = "T0123456789/verylongtokeninthepath"
	cfg := Config{
		URL:     "http://app:hunter2hunter2@endpoint.test/" + token + "?key=averylongtokeninthequery&short=1",
		Headers: map[string]Secret{"X-Api-Key": "k3yk3yk3y"}, Secrets: []Secret{testSecret},
	}
	for _, c := range []struct{ mediaType, body, want string }{
		{"text/plain; charset=utf-8", "out of order\n", `: "out of order"`},
		{"", "out of order", `: "out of order"`},
		{"application/problem+json", `{"title":"no"}`, `: "{\"title\":\"no\"}"`},
		{"application/xml", "<no/>", `: "<no/>"`},
		{"image/png", "\x89PNG", "400 Bad Request"},
		{"text/plain", "a\r\nlevel=error msg=\x1b[31mred\x00\u202e\xff", `: "a level=error msg= [31mred"`},
		{"text/plain", strings.Repeat("ä", 200), `: "` + strings.Repeat("ä", 100) + `…"`},
		{"text/plain", "a" + strings.Repeat("ä", 200), `: "a` + strings.Repeat("ä", 99) + `…"`},
		{"text/plain", "key k3yk3yk3y is wrong", `: "key xxxxx is wrong"`},
		{"text/plain", "Basic YXBwOmh1bnRlcjJodW50ZXIy is wrong", `: "xxxxx is wrong"`},
		{"text/plain", "YXBwOmh1bnRlcjJodW50ZXIy is wrong", `: "xxxxx is wrong"`},
		{"text/plain", "Cannot POST /" + token + "?key=averylongtokeninthequery", `: "Cannot POST /T0123456789/xxxxx?key=xxxxx"`},
		{"text/plain", "signed with " + testSecret, `: "signed with whsec_xxxxx"`},
		{"text/plain", strings.Repeat(" ", 3000) + "late", `: "late"`},
		{"text/plain", "", "400 Bad Request"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := piped(t, cfg, answering(func(_ *http.Request, out io.Writer) {
				_, _ = fmt.Fprintf(out, "HTTP/1.1 400 Bad\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", c.mediaType, len(c.body), c.body)
			}))
			err := one(t, s, message("m", ""))
			wantKind(t, c.body, err, "permanent")
			if !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("%q: %s\nwant the end %s", c.body, err, c.want)
			}
			for _, secret := range []string{"hunter2", "k3yk3y", "verylongtoken", testSecret[6:]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the secret %s shows in %v", secret, err)
				}
			}
		})
	}
}

// Bodies are read to their end, so connections can be reused. Connections whose body does not end
// soon are closed.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for _, c := range []struct {
		name       string
		body, want int
	}{{"no body", 0, 1}, {"a small one", 100, 1}, {"almost as large as is read", maxAnswerBody - 1, 1}, {"larger", 2 * maxAnswerBody, 10}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				status, connections := 200, 0
				serve := answering(func(_ *http.Request, out io.Writer) {
					status = 700 - status // 500, 200, …
					_, _ = fmt.Fprintf(out, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, c.body, strings.Repeat("y", c.body))
				})
				s := piped(t, Config{}, serve)
				dial := s.transport.DialContext
				s.transport.DialContext = countDials(dial, &connections)
				for i := range 10 {
					err := one(t, s, message(fmt.Sprint(i), ""))
					if penstock.IsUnavailable(err) {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if connections != c.want {
					t.Errorf("%d connections for 10 messages, want %d", connections, c.want)
				}
			})
		})
	}
}
