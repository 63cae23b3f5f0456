// Package s3 stores payloads for package claimcheck in Amazon S3 or a compatible store.
package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/sink/claimcheck"
)

// Store keeps payloads in a bucket. It is safe for concurrent use.
type Store struct {
	cfg    claimcheck.Config
	client *s3.Client
	http   *http.Client
}

var _ claimcheck.Store = (*Store)(nil)

// Open checks the configuration, which names a bucket. The service need not be up, and no credentials are asked for yet.
func Open(cfg claimcheck.Config) (*Store, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("claim check: %w", err)
	}
	set := &amazon.Settings{Region: cfg.Region, Profile: cfg.Profile, Endpoint: cfg.Endpoint, AllowPrivate: cfg.AllowPrivate, Concurrency: claimcheck.Puts}
	settings.Defaults(set)
	loaded, over, err := amazon.Load(set)
	if err != nil {
		return nil, fmt.Errorf("claim check: %w", err)
	}
	s := &Store{cfg: cfg, http: over}
	s.client = s3.NewFromConfig(loaded, func(to *s3.Options) {
		to.HTTPClient = s.http
		// Put brings a SHA-256. Not every compatible store takes the SDK's own checksums.
		to.RequestChecksumCalculation, to.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
		if cfg.Endpoint != "" {
			to.BaseEndpoint, to.UsePathStyle = &cfg.Endpoint, true
		}
	})
	return s, nil
}

func (s *Store) key(name string) *string { return aws.String(s.cfg.Prefix + name) }

// Put writes an object. The service compares its SHA-256.
func (s *Store) Put(ctx context.Context, o claimcheck.Object) (string, error) {
	timed, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	in := &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: s.key(o.Name), Body: bytes.NewReader(o.Payload), ContentLength: aws.Int64(int64(len(o.Payload))),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(o.SHA256[:])),
	}
	if o.ContentType != "" {
		in.ContentType = &o.ContentType
	}
	if _, err := s.client.PutObject(timed, in); err != nil {
		return "", s.explain(err, "s3:PutObject")
	}
	return "s3://" + s.cfg.Bucket + "/" + *in.Key, nil
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: s.key(name)})
	if err != nil {
		return nil, s.explain(err, "s3:GetObject")
	}
	return out.Body, nil
}

// Reach asks which rule deletes the objects.
func (s *Store) Reach(ctx context.Context) (warning string, err error) {
	out, err := s.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &s.cfg.Bucket})
	if err == nil && slices.ContainsFunc(out.Rules, s.expires) {
		return "", nil
	}
	if err != nil {
		switch code, said := amazon.Said("S3", err); code {
		case "NoSuchLifecycleConfiguration":
		case "AccessDenied", "NotImplemented", "MethodNotAllowed":
			return "", fmt.Errorf("%w: %w", fs.ErrPermission, said)
		default:
			return "", s.explain(err, "s3:GetLifecycleConfiguration")
		}
	}
	return fmt.Sprintf("no lifecycle rule deletes the objects of s3://%s/%s", s.cfg.Bucket, s.cfg.Prefix), nil
}

// expires reports whether a rule deletes all objects with the prefix some time after they were written.
func (s *Store) expires(r types.LifecycleRule) bool {
	if r.Status != types.ExpirationStatusEnabled || r.Expiration == nil || r.Expiration.Days == nil {
		return false
	}
	//lint:ignore SA1019 older rules have it here
	prefix := aws.ToString(r.Prefix)
	if f := r.Filter; f != nil {
		if f.And != nil || f.Tag != nil || f.ObjectSizeGreaterThan != nil || f.ObjectSizeLessThan != nil {
			return false // of some objects only
		}
		prefix = aws.ToString(f.Prefix)
	}
	return strings.HasPrefix(s.cfg.Prefix, prefix)
}

// explain is the error of a request, with its class and the next step. right is the permission that the request needs.
func (s *Store) explain(err error, right string) error {
	code, said := amazon.Said("S3", err)
	switch code {
	case "NoSuchKey":
		return penstock.WithHint(fmt.Errorf("%w: %w", fs.ErrNotExist, said), "a rule has deleted it: deliver the message again with penstock replay OUTBOX --from -2h, and have objects kept for longer")
	case "NoSuchBucket":
		said = penstock.WithHint(said, "create the bucket %s, or correct its name", s.cfg.Bucket)
	case "AccessDenied", "AllAccessDisabled":
		said = penstock.WithHint(said, "permit %s on arn:aws:s3:::%s/%s*", right, s.cfg.Bucket, s.cfg.Prefix)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "MovedPermanently":
		said = penstock.WithHint(said, "set region to the bucket's")
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed":
		said = penstock.WithHint(said, "check the credentials and this machine's clock")
	case "BadDigest", "XAmzContentSHA256Mismatch", "EntityTooLarge", "RequestTimeout", "IncompleteBody":
		return said // of this object
	}
	return penstock.Unavailable(said)
}

// Close closes idle connections.
func (s *Store) Close() { s.http.CloseIdleConnections() }
