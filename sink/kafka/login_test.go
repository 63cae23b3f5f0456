package kafka_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/aws"

	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/kafka"
)

// issuer gives tokens to the client that is called user with the secret password, and has the key to check them.
type issuer struct {
	*httptest.Server
	key    *rsa.PrivateKey
	valid  time.Duration
	issued atomic.Int64
}

const keyID = "penstock-test"

func newIssuer(t *testing.T, valid time.Duration) *issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	i := &issuer{key: key, valid: valid}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/keys" {
		n, e := base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()), binary.BigEndian.AppendUint32(nil, uint32(i.key.E))
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":%q,"n":%q,"e":%q}]}`, keyID, n, base64.RawURLEncoding.EncodeToString(bytes.TrimLeft(e, "\x00")))
		return
	}
	id, secret, _ := r.BasicAuth()
	if id != user || secret != password || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"no such client","echo":%q}`, secret)
		return
	}
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, i.token(), int(i.valid.Seconds()))
}

// token is a signed token.
func (i *issuer) token() string {
	i.issued.Add(1)
	encode := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now()
	text := encode(map[string]any{"alg": "RS256", "typ": "JWT", "kid": keyID}) + "." +
		encode(map[string]any{"iss": "penstock", "aud": "kafka", "sub": user, "scope": "kafka", "iat": now.Unix(), "exp": now.Add(i.valid).Unix()})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// options make a broker check the issuer's tokens.
func (i *issuer) options(listener string) (o testserver.KafkaOptions) {
	o.JVM = []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + i.URL + "/keys"}
	o.Properties = []string{
		"sasl.oauthbearer.jwks.endpoint.url=" + i.URL + "/keys",
		"sasl.oauthbearer.expected.audience=kafka",
		"sasl.oauthbearer.expected.issuer=penstock",
		"sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
		"listener.name." + listener + ".oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
		"listener.name." + listener + ".oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
	}
	return o
}

// logins starts a broker of the library that accepts every login, and returns the first bytes of a login.
func logins(t *testing.T, mechanism, answer string, opts ...kfake.Opt) (address string, sent func() []byte) {
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(1, topics[0]))...)
	check(t, err)
	t.Cleanup(c.Close)
	var first atomic.Pointer[[]byte]
	c.ControlKey(17, func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		q := r.(*kmsg.SASLHandshakeRequest)
		if q.Mechanism != mechanism {
			t.Errorf("the mechanism is %s", q.Mechanism)
		}
		return q.ResponseKind(), nil, true
	})
	c.ControlKey(36, func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		q := r.(*kmsg.SASLAuthenticateRequest)
		first.CompareAndSwap(nil, &q.SASLAuthBytes)
		p := q.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		p.SASLAuthBytes = []byte(answer)
		return p, nil, true
	})
	return c.ListenAddrs()[0], func() []byte { return *first.Load() }
}

// A token by the grant client_credentials, and one from a file that is renewed.
func TestLoginOAuth(t *testing.T) {
	i := newIssuer(t, time.Hour)
	file := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		name string
		cfg  kafka.Config
	}{
		{"url", kafka.Config{User: user, Password: password, OAuth: kafka.OAuthConfig{TokenURL: i.URL, Scope: "kafka"}}},
		{"file", kafka.Config{OAuth: kafka.OAuthConfig{TokenFile: file}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, sent := logins(t, "OAUTHBEARER", "")
			c.cfg.URL, c.cfg.SASL = "kafka://"+address, "oauthbearer"
			s := open(t, unhurried(c.cfg))
			if c.name == "file" {
				wantAnswer(t, send(t, s, message("1", "", topics[0]))[0], "unavailable", "oauth.token_file must name a file")
				check(t, os.WriteFile(file, []byte(i.token()+"\n"), 0o600))
			}
			if errs := send(t, s, message("1", "", topics[0])); errs != nil && errs[0] != nil {
				t.Fatal(errs)
			}
			if got := string(sent()); !strings.HasPrefix(got, "n,,\x01auth=Bearer ey") || !strings.HasSuffix(got, "\x01\x01") {
				t.Errorf("sent %q", got)
			}
		})
	}
	if n := i.issued.Load(); n != 2 {
		t.Errorf("%d tokens were issued", n)
	}
}

// The answer of the token's server is not quoted: it may repeat what it was sent.
func TestLoginOAuthRefused(t *testing.T) {
	i := newIssuer(t, time.Hour)
	cfg := unhurried(kafka.Config{URL: "kafka://127.0.0.1:1", SASL: "oauthbearer", User: user, Password: wrong, OAuth: kafka.OAuthConfig{TokenURL: i.URL, Scope: "kafka"}})
	address, _ := logins(t, "OAUTHBEARER", "")
	cfg.URL = "kafka://" + address
	err := send(t, open(t, cfg), message("1", "", topics[0]))[0]
	wantAnswer(t, err, "unavailable", "401 Unauthorized no such client")
	wantAnswer(t, err, "unavailable", "check oauth.token_url")
	if strings.Contains(err.Error(), wrong) {
		t.Error("the secret shows")
	}
}

type keys aws.Auth

func (k keys) Retrieve(context.Context) (aws.Auth, error) { return aws.Auth(k), nil }

// The login is a request that AWS's own library signs in the same way.
func TestLoginAWS(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-north-1")
	certs := makeCertificates(t)
	address, sent := logins(t, "AWS_MSK_IAM", `{"version":"2020_10_22"}`, kfake.TLS(certs.server))
	given := keys{AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: password, SessionToken: "t0ken"}
	cfg := unhurried(kafka.Config{URL: "kafkas://" + address, SASL: "aws-msk-iam", AWS: given, TLS: certs.client})
	if errs := send(t, open(t, cfg), message("1", "", topics[0])); errs != nil && errs[0] != nil {
		t.Fatal(errs)
	}
	var said map[string]string
	check(t, json.Unmarshal(sent(), &said))
	query := url.Values{"Action": {"kafka-cluster:Connect"}, "X-Amz-Expires": {"300"}}
	request, err := http.NewRequest(http.MethodGet, "http://"+said["host"]+"/?"+query.Encode(), nil)
	check(t, err)
	at, err := time.Parse("20060102T150405Z", said["x-amz-date"])
	check(t, err)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), awssdk.Credentials{AccessKeyID: given.AccessKey, SecretAccessKey: given.SecretKey, SessionToken: given.SessionToken},
		request, empty, "kafka-cluster", "eu-north-1", at)
	check(t, err)
	want, err := url.Parse(signed)
	check(t, err)
	for name, values := range want.Query() {
		if got := said[strings.ToLower(name)]; got != values[0] {
			t.Errorf("%s is %q, want %q", name, got, values[0])
		}
	}
	if said["version"] != "2020_10_22" || said["host"] != "127.0.0.1" {
		t.Errorf("version %q, host %q", said["version"], said["host"])
	}
	cfg.AWS = nil
	if _, err := kafka.Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "set Config.AWS") {
		t.Error(err)
	}
}

// The user and the password of Azure Event Hubs are a connection string, and it requires TLS. Tokens are checked by their
// signature. They are valid for so short a time that the client must log in again on its connections.
func TestBrokerLogins(t *testing.T) {
	needBroker(t)
	const connection = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=relay;SharedAccessKey=aHVzaC1odXNoLTQ3MTE+/w=="
	i := newIssuer(t, 3*time.Second)
	authority := testcerts.New(t)
	cert := authority.Server(t, "kafka.example")
	port, err := testserver.FreePort()
	check(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	o := i.options("secure")
	o.Listeners = []testserver.KafkaListener{{Name: "SECURE", Protocol: "SASL_SSL", Port: port, Advertised: address}}
	o.Properties = append(o.Properties,
		"listener.name.secure.ssl.keystore.type=PEM",
		"listener.name.secure.ssl.keystore.location="+joined(t, cert.KeyFile, cert.CertFile),
		"listener.name.secure.sasl.enabled.mechanisms=PLAIN,OAUTHBEARER",
		"connections.max.reauth.ms=60000",
		`listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_$ConnectionString="`+connection+`";`)
	b := startBroker(t, o)
	topic := b.create(t, "orders.placed", nil)
	for _, c := range []struct {
		name string
		cfg  kafka.Config
		says string // of an error
	}{
		{"connection string", kafka.Config{SASL: "plain", User: "$ConnectionString", Password: connection}, ""},
		{"another connection string", kafka.Config{SASL: "plain", User: "$ConnectionString", Password: connection + "x"}, "check user, password and sasl"},
		{"token by file", kafka.Config{SASL: "oauthbearer", OAuth: kafka.OAuthConfig{TokenFile: tokenFile(t, i.key)}}, ""},
		{"a token with another signature", kafka.Config{SASL: "oauthbearer", OAuth: kafka.OAuthConfig{TokenFile: tokenFile(t, newIssuer(t, 0).key)}}, "the broker refuses the token"},
		{"token by URL", kafka.Config{SASL: "oauthbearer", User: user, Password: password, OAuth: kafka.OAuthConfig{TokenURL: i.URL, Scope: "kafka"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URL, c.cfg.TLS = "kafkas://"+address, kafka.TLSConfig{CAFile: authority.CAFile, ServerName: "kafka.example"}
			s := open(t, unhurried(c.cfg))
			err := send(t, s, message("1", "", topic))[0]
			if c.says != "" {
				wantAnswer(t, err, "unavailable", c.says)
				return
			}
			check(t, err)
			for c.cfg.OAuth.TokenURL != "" && i.issued.Load() < 3 {
				check(t, send(t, s, message("1", "", topic))[0])
			}
		})
	}
}

// tokenFile has a token that is valid for an hour.
func tokenFile(t *testing.T, key *rsa.PrivateKey) string {
	file := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(file, []byte((&issuer{key: key, valid: time.Hour}).token()), 0o600))
	return file
}
