// Command image writes an image of the program as an OCI layout, without a daemon: script/release.sh calls it.
//
//	image FOLDER VERSION UNIX-TIME LICENSE amd64=BINARY arm64=BINARY
//
// It holds what deploy/Dockerfile puts into one, and a /tmp for penstock demo.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	folder, version, license := os.Args[1], os.Args[2], os.Args[4]
	seconds, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	created := time.Unix(seconds, 0).UTC()
	labels := map[string]string{
		"org.opencontainers.image.title":    "penstock",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   "https://github.com/penstock/penstock",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range os.Args[5:] {
		arch, binary, _ := strings.Cut(arg, "=")
		files, err := files(created, license, binary)
		check(err)
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
		check(err)
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image, err = mutate.AppendLayers(image, layer)
		check(err)
		config, err := image.ConfigFile()
		check(err)
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
		config.Config = v1.Config{
			User: "65532:65532", Entrypoint: []string{"/penstock"}, StopSignal: "SIGTERM", Labels: labels,
			ExposedPorts: map[string]struct{}{"9464/tcp": {}},
			Cmd:          []string{"relay", "--config", "/etc/penstock/penstock.yaml", "--metrics-listen", "0.0.0.0:9464", "--log-format", "json"},
		}
		image, err = mutate.ConfigFile(image, config)
		check(err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	path, err := layout.Write(folder, empty.Index)
	check(err)
	check(path.AppendIndex(index, layout.WithAnnotations(map[string]string{ // the names for podman, and for docker load
		"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name":          "docker.io/library/penstock:" + version,
	})))
}

// files is the one layer, as a tar file: the same bytes for the same program.
func files(created time.Time, license, binary string) ([]byte, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	terms, err := os.ReadFile(license)
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // Mozilla trusts the others for some certificates only, which a file cannot say
			check(pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"tmp/", 0o1777, nil},
		{"etc/", 0o755, nil},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"LICENSE", 0o644, terms},
		{"penstock", 0o755, program},
	} {
		h := tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: created, Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = w.Close() // writes the end of the tar file
	return out.Bytes(), err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
