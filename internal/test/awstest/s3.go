package awstest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// S3 is an emulator of Amazon S3 in this process, with the bucket in the path. It follows the documentation of
// the service, as far as claim checks use it. It checks a SHA-256 that comes with an object. A test may have it refuse.
type S3 struct {
	*inProcess

	mu        sync.Mutex
	buckets   map[string]map[string]StoredObject
	lifecycle string // XML of the rules; empty: none
	refuse    string // the code with which every request is refused
	written   func(key string)
	puts      int
}

// StoredObject is the object of a bucket under a key.
type StoredObject struct {
	Body        []byte
	ContentType string
}

// StartS3 starts an emulator with a bucket.
func StartS3(tb testing.TB, bucket string) *S3 {
	s := &S3{buckets: map[string]map[string]StoredObject{bucket: {}}}
	s.inProcess = startInProcess(tb, s)
	return s
}

// Objects are those of a bucket, by key.
func (s *S3) Objects(bucket string) map[string]StoredObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.buckets[bucket])
}

// Puts is how many objects were written so far, each time.
func (s *S3) Puts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts
}

// Change replaces an object, or deletes it if body is nil.
func (s *S3) Change(bucket, key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if body == nil {
		delete(s.buckets[bucket], key)
		return
	}
	s.buckets[bucket][key] = StoredObject{Body: body}
}

// Lifecycle sets the rules of every bucket, as XML.
func (s *S3) Lifecycle(rules string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifecycle = rules
}

// Refuse refuses every request with an error code; an empty one ends this.
func (s *S3) Refuse(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = code
}

// Written has a function called with each key that was written, before the answer.
func (s *S3) Written(f func(key string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = f
}

var s3Status = map[string]int{
	"NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchLifecycleConfiguration": 404, "BadDigest": 400, "SlowDown": 503, "NotImplemented": 501,
}

func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection was cut
	}
	refuse := func(code, message string) {
		status := s3Status[code]
		if status == 0 {
			status = http.StatusForbidden
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	objects, known := s.buckets[bucket]
	object, there := objects[key]
	refused, lifecycle, written := s.refuse, s.lifecycle, s.written
	s.mu.Unlock()
	switch {
	case strings.Contains(r.Header.Get("Authorization"), "Credential="+DeniedID):
		refuse("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.\nThe Canonical String was\nx-amz-security-token:"+r.Header.Get("X-Amz-Security-Token"))
	case refused != "":
		refuse(refused, "as the test wants it")
	case !known:
		refuse("NoSuchBucket", "The specified bucket does not exist")
	case r.URL.Query().Has("lifecycle") && lifecycle == "":
		refuse("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
	case r.URL.Query().Has("lifecycle"):
		fmt.Fprintf(w, "<LifecycleConfiguration>%s</LifecycleConfiguration>", lifecycle)
	case r.Method == http.MethodPut:
		if sum := sha256.Sum256(body); r.Header.Get("X-Amz-Checksum-Sha256") != base64.StdEncoding.EncodeToString(sum[:]) {
			refuse("BadDigest", "The SHA256 you specified did not match what we received.")
			return
		}
		s.mu.Lock()
		s.buckets[bucket][key] = StoredObject{body, r.Header.Get("Content-Type")}
		s.puts++
		s.mu.Unlock()
		if written != nil {
			written(key)
		}
	case r.Method == http.MethodGet && there:
		w.Header().Set("Content-Type", object.ContentType)
		_, _ = w.Write(object.Body)
	case r.Method == http.MethodGet:
		refuse("NoSuchKey", "The specified key does not exist.")
	default:
		refuse("NotImplemented", r.Method)
	}
}
