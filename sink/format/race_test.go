//go:build race

package format_test

const raceDetector = true
