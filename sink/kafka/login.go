package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// Mechanisms to log in.
const (
	saslPlain    = "plain"
	saslScram256 = "scram-sha-256"
	saslScram512 = "scram-sha-512"
	saslOAuth    = "oauthbearer"
	saslAWS      = "aws-msk-iam"
)

var mechanisms = []string{saslPlain, saslScram256, saslScram512, saslOAuth, saslAWS}

// AWSCredentials gives credentials, which may be temporary, at each login.
type AWSCredentials interface {
	Retrieve(ctx context.Context) (aws.Auth, error)
}

func (c *Config) validateLogin(a *address) error {
	withUser := c.SASL == saslPlain || c.SASL == saslScram256 || c.SASL == saslScram512
	switch {
	case a.user != "" && a.password == "":
		return field("user", "is set without password", "set password too")
	case a.user != "" && c.SASL == "":
		return field("sasl", "is not set, but there is a user", "choose how the user logs in to the brokers: %s", strings.Join(mechanisms, ", "))
	case c.SASL != "" && !slices.Contains(mechanisms, c.SASL):
		return field("sasl", fmt.Sprintf("is %q", c.SASL), "choose one of %s", strings.Join(mechanisms, ", "))
	case withUser && a.user == "":
		return field("sasl", "is set without user", "set user and password, or leave it out")
	case c.SASL == saslAWS && a.user != "":
		return field("user", "is set, but sasl is aws-msk-iam", "remove user and password: credentials of AWS come from the environment, the shared files or the machine's role")
	case c.SASL == saslAWS && !a.tls:
		return field("sasl", "is aws-msk-iam, but the URL is not kafkas://", "write kafkas:// and port 9098, or 9198 from outside the VPC")
	case c.SASL != saslOAuth && c.OAuth != OAuthConfig{}:
		return field("oauth", "is set, but sasl is not oauthbearer", "set sasl: oauthbearer")
	case c.SASL != saslOAuth:
		return nil
	case (c.OAuth.TokenFile == "") == (c.OAuth.TokenURL == ""):
		return field("oauth", "does not say where the token comes from", "set either token_file or token_url")
	case c.OAuth.TokenFile != "" && (a.user != "" || c.OAuth.Scope != ""):
		return field("oauth.token_file", "is set with a user or a scope", "they are for token_url")
	case c.OAuth.TokenURL != "" && a.user == "":
		return field("oauth.token_url", "is set without user", "set user and password to the id and the secret of the client")
	}
	if u, err := url.Parse(c.OAuth.TokenURL); c.OAuth.TokenURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil) {
		return field("oauth.token_url", "is not a URL", "write https://host/path, without a login")
	}
	return nil
}

// login is how producers log in, or nil.
func (c *Config) login() (sasl.Mechanism, error) {
	a, err := c.address()
	if err != nil {
		return nil, err
	}
	switch c.SASL {
	case saslPlain:
		return plain.Auth{User: a.user, Pass: a.password}.AsMechanism(), nil
	case saslScram256:
		return scram.Auth{User: a.user, Pass: a.password}.AsSha256Mechanism(), nil
	case saslScram512:
		return scram.Auth{User: a.user, Pass: a.password}.AsSha512Mechanism(), nil
	case saslAWS:
		if c.AWS == nil {
			return nil, field("sasl", "is aws-msk-iam without credentials", "set Config.AWS, for example to the default chain of AWS's SDK")
		}
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
			auth, err := c.AWS.Retrieve(ctx)
			if err != nil {
				err = &loginError{fmt.Errorf("no credentials of AWS: %w", err), "give the program a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
			}
			return auth, err
		}), nil
	case saslOAuth:
		return bearer{oauth.Oauth(c.OAuth.tokens(a.user, a.password, &http.Client{Timeout: c.ConnectTimeout}))}, nil
	}
	return nil, nil
}

// tokens returns the function that gives a token for a login.
func (o OAuthConfig) tokens(id, secret string, client *http.Client) func(context.Context) (oauth.Auth, error) {
	if o.TokenFile != "" {
		return func(context.Context) (auth oauth.Auth, err error) {
			token, err := os.ReadFile(o.TokenFile)
			if auth.Token = strings.TrimSpace(string(token)); err == nil && auth.Token == "" {
				err = fmt.Errorf("%s is empty", o.TokenFile)
			}
			if err != nil {
				err = &loginError{fmt.Errorf("no token: %w", err), "oauth.token_file must name a file with a token, which another program renews"}
			}
			return auth, err
		}
	}
	asks := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: o.TokenURL, Scopes: strings.Fields(o.Scope)}
	source := asks.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, client)) // keeps a token while it is valid
	return func(context.Context) (auth oauth.Auth, err error) {
		token, err := source.Token()
		if err == nil {
			auth.Token = token.AccessToken
			return auth, nil
		}
		if said, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text has the whole answer
			err = fmt.Errorf("%s answers %s %s", o.TokenURL, said.Response.Status, cmp.Or(said.ErrorDescription, said.ErrorCode))
		}
		return auth, &loginError{fmt.Errorf("no token: %w", err), "check oauth.token_url, and that user and password are the id and the secret of a client there"}
	}
}

// bearer makes an error of the answer with which a broker refuses a token.
type bearer struct{ sasl.Mechanism }

func (b bearer) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s, first, err := b.Mechanism.Authenticate(ctx, host)
	return bearerSession{s}, first, err
}

type bearerSession struct{ sasl.Session }

func (s bearerSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, nil, &loginError{fmt.Errorf("the broker refuses the token: %.200q", answer), "see that the brokers know who issued the token, and that its audience and scope are theirs"}
	}
	return s.Session.Challenge(answer)
}

// loginError: there is nothing to log in with.
type loginError struct {
	err  error
	hint string
}

func (e *loginError) Error() string { return e.err.Error() }
func (e *loginError) Unwrap() error { return e.err }
