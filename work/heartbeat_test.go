package work

import (
	"runtime/debug"
	"testing"
)

// The version of a program whose commit has no tag is its revision: the one that Go makes of its time is long.
func TestVersionOfAProgram(t *testing.T) {
	const revision = "abcdef0123456789abcdef0123456789abcdef01"
	for version, want := range map[string]string{
		"v1.2.3": "shop v1.2.3", "v1.2.3-rc.1": "shop v1.2.3-rc.1", "v2.0.0+incompatible": "shop v2.0.0+incompatible",
		"(devel)": "shop abcdef012345", "": "shop abcdef012345",
		"v0.0.0-20261130230559-123456789abc": "shop 123456789abc", "v1.2.4-0.20261130230559-123456789abc+dirty": "shop 123456789abc", "v1.2.3-rc.1.0.20261130230559-123456789abc": "shop 123456789abc",
	} {
		info := &debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: version}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}}}
		if got := versionOf(info); got != want {
			t.Errorf("version %q: shown is %q, want %q", version, got, want)
		}
	}
}
