package settings

import (
	"strings"
	"testing"
	"time"
)

type config struct {
	User     string        `yaml:"user"`
	Password string        `yaml:"password" needs:"user"`
	Topic    string        `yaml:"topic" default:"{topic}" template:"orders.{topic}"`
	Kind     string        `yaml:"kind" default:"a" oneof:"a b"`
	Size     int           `yaml:"size" default:"8" min:"2" max:"64"`
	Keep     int           `yaml:"keep"`
	Timeout  time.Duration `yaml:"timeout" default:"5s"`
	Beat     time.Duration `yaml:"beat" default:"10s" min:"1s"`
	Inline   `yaml:",inline"`
	Group    group  `yaml:"group"`
	None     *group `yaml:"none"`
	Some     *group `yaml:"some"`
	Hidden   any    `yaml:"-" default:"x"`
}

type Inline struct {
	Lines []string `yaml:"lines" default:"a,b"`
}

type group struct {
	Count int  `yaml:"count" default:"3" max:"5"`
	On    bool `yaml:"on" default:"true"`
}

func TestDefaults(t *testing.T) {
	c := config{Kind: "b", Some: &group{Count: 1}}
	Defaults(&c)
	if c.Topic != "{topic}" || c.Kind != "b" || c.Size != 8 || c.Keep != 0 || c.Timeout != 5*time.Second || len(c.Lines) != 2 ||
		c.Group != (group{3, true}) || c.None != nil || *c.Some != (group{1, true}) || c.Hidden != nil {
		t.Errorf("%+v", c)
	}
	if err := Check(&c); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for want, set := range map[string]func(*config){
		"password is set without user: set user too":    func(c *config) { c.Password = "p" },
		"topic cannot be used (template":                func(c *config) { c.Topic = "{" },
		"write a template such as orders.{topic}":       func(c *config) { c.Topic = "{" },
		`kind is "c": choose a or b`:                    func(c *config) { c.Kind = "c" },
		"size is 65: choose 2 to 64":                    func(c *config) { c.Size = 65 },
		"size is 1: choose 2 to 64":                     func(c *config) { c.Size = 1 },
		"keep is negative: write 0 or more":             func(c *config) { c.Keep = -1 },
		"timeout is negative: write a duration such as": func(c *config) { c.Timeout = -1 },
		"beat is 1ms: choose 1s or more":                func(c *config) { c.Beat = time.Millisecond },
		"group.count is 6":                              func(c *config) { c.Group.Count = 6 },
		"some.count is 7":                               func(c *config) { c.Some = &group{Count: 7} },
	} {
		c := config{}
		Defaults(&c)
		set(&c)
		if err := Check(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
