package plot

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sample() Chart {
	up, down := Series{Name: "Penstock"}, Series{Name: "hand-written"}
	for i := range 20 {
		x := float64(i) * 3
		up.Points = append(up.Points, Point{x, 25_000 + 300*float64(i%3)})
		down.Points = append(down.Points, Point{x, 7_000 / float64(i+1)})
	}
	return Chart{
		Title: "Ten dequeuers", Subtitle: "FIFO, 1,000,000 jobs, snapshot pinned",
		Panels: []Panel{
			{X: "seconds", Y: "jobs/s", Series: []Series{up, down}},
			{X: "seconds", Y: "p99, ms", Series: []Series{down, up}, Log: true},
		},
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"chart.svg", "chart.PNG"} {
		if err := sample().WriteFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "chart.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Ten dequeuers", "1,000,000 jobs", "jobs/s", "p99, ms", "hand-written", "25,000"} {
		if !bytes.Contains(svg, []byte(text)) {
			t.Errorf("the SVG does not say %q", text)
		}
	}
	file, err := os.Open(filepath.Join(dir, "chart.PNG"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if image, err := png.Decode(file); err != nil || image.Bounds().Dx() < 1000 {
		t.Errorf("got %v, %v", image, err)
	}
}

func TestNothingToDraw(t *testing.T) {
	c := sample()
	for i := range c.Panels {
		c.Panels[i].Series = []Series{{Name: "empty"}, {Name: "zero", Points: []Point{{0, 0}}}}
	}
	if err := c.WriteFile(filepath.Join(t.TempDir(), "chart.svg")); err != nil {
		t.Error(err)
	}
}

func TestBadFile(t *testing.T) {
	for path, want := range map[string]string{
		"chart.gif": "neither .svg nor .png",
		"chart":     "neither .svg nor .png",
		filepath.Join(t.TempDir(), "no", "c.svg"):  "make it first",
		filepath.Join(t.TempDir(), "no", "c.jpeg"): "neither .svg nor .png",
	} {
		if err := CheckFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", path, err, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 999: "999", 1000: "1,000", -25_000: "-25,000", 1_234_567: "1,234,567", 0.1 + 0.2: "0.3", 0.05: "0.05"} {
		if got := thousands(v); got != want {
			t.Errorf("thousands(%v) = %q, want %q", v, got, want)
		}
	}
}
