package claimcheck

import (
	"cmp"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/publicaddr"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
)

// Config sets which payloads are stored, and where: in a bucket or in a directory. The zero value of a field
// means its default; see SetDefaults. Credentials are not in it: they come from the default
// chain of the SDK.
type Config struct {
	// Bucket of Amazon S3 or a compatible store.
	Bucket string `yaml:"bucket" url:"-"`
	// Prefix of the objects' names. It ends in a slash, which SetDefaults adds.
	Prefix string `yaml:"prefix" url:"-"`
	// Directory that relay and consumers share, instead of a bucket.
	Directory string `yaml:"directory" url:"-"`

	// MaxInlineBytes is the largest payload that stays in its message. One of the default's size also fits
	// the smallest of the sinks' limits, 256 KiB, in base64.
	MaxInlineBytes int `yaml:"max_inline_bytes" default:"131072" min:"1" max:"67108864"`

	// Region of the bucket. Default: that of the environment and the shared files.
	Region string `yaml:"region"`
	// Profile of the shared files of AWS (~/.aws).
	Profile string `yaml:"profile"`
	// Endpoint is the address of a compatible store: http://host:port. The bucket is a part of the path then.
	Endpoint string `yaml:"endpoint"`
	// AllowPrivate permits an Endpoint whose address is not public.
	AllowPrivate bool `yaml:"allow_private" needs:"endpoint"`
	// Timeout limits the writing of one object to a bucket.
	Timeout time.Duration `yaml:"timeout" default:"30s"`
}

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	settings.Defaults(c)
	if c.Prefix != "" && !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixText = regexp.MustCompile(`^([A-Za-z0-9!_.*'()=-]+/)*$`)
)

// Validate returns a *penstock.FieldError for the first field that cannot be used. Call SetDefaults before.
func (c *Config) Validate() error {
	switch {
	case c.Bucket == "" && c.Directory == "":
		return field("bucket", "is missing", "name a bucket, or a directory")
	case c.Bucket != "" && c.Directory != "":
		return field("directory", "is given together with bucket", "keep one of them")
	case c.Directory != "" && !filepath.IsAbs(c.Directory):
		return field("directory", "is not an absolute path", "write a path such as /srv/payloads")
	case c.Directory != "" && (c.Prefix+c.Region+c.Profile+c.Endpoint != "" || c.AllowPrivate):
		return field("directory", "is given together with settings of a bucket", "remove prefix, region, profile, endpoint and allow_private")
	case c.Directory != "":
		return settings.Check(c)
	case !bucketName.MatchString(c.Bucket):
		return field("bucket", "is not a bucket's name", "use 3 to 63 lower-case letters, digits, hyphens and dots")
	case len(c.Prefix) > 256 || !prefixText.MatchString(c.Prefix):
		return field("prefix", "cannot be used", "write words of letters, digits and !_.*'()=- with slashes between, up to 256 bytes")
	case c.Endpoint == "":
		return settings.Check(c)
	}
	_, err := (&publicaddr.Permitted{All: c.AllowPrivate}).Endpoint(c.Endpoint)
	return cmp.Or(err, settings.Check(c))
}

// ParseURL reads a Config from one line, for a command line:
//
//	s3://BUCKET/PREFIX?region=eu-west-1
//	file:///srv/payloads?max_inline_bytes=65536
//
// Query parameters are the other fields of the YAML form. The result has its defaults set and is valid.
func ParseURL(text string) (c Config, err error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Fragment != "" || u.Scheme != "s3" && (u.Scheme != "file" || u.Host != "") {
		return c, field("url", "is not the place of a claim check", "write s3://BUCKET/PREFIX or file:///DIRECTORY")
	}
	if u.Scheme == "file" {
		c.Directory = filepath.FromSlash(u.Path)
	} else {
		c.Bucket, c.Prefix = u.Host, strings.TrimPrefix(u.Path, "/")
	}
	return sinkurl.Read(c, u.RawQuery, "a claim check")
}

var field = settings.Field
