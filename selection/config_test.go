package selection

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheDefaultsAreValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestEveryInvalidSettingIsReportedInOneSortedError(t *testing.T) {
	err := Config{Redraws: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if !slices.IsSorted(lines) {
		t.Errorf("not sorted:\n%v", err)
	}
	names := []string{"Alpha", "ConsecutiveFailures", "ErrorRateThreshold", "InitialLatency", "MaxEviction", "Overprovisioning", "Redraws"}
	if len(lines) != len(names) {
		t.Fatalf("%d errors, want %d:\n%v", len(lines), len(names), err)
	}
	for i, name := range names {
		if !strings.Contains(lines[i], name) || !strings.Contains(lines[i], "allowed is") {
			t.Errorf("error %q, want one about %s that says what is allowed", lines[i], name)
		}
	}
	if _, err := NewBalancer[any](Config{}); err == nil {
		t.Error("NewBalancer took an invalid configuration")
	}
}

// HS-A11: alpha in (0, 1]; and the edges of the others.
func TestTheEdgesOfTheAllowedRanges(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*Config)
		ok   bool
	}{
		{"alpha 0", func(c *Config) { c.Alpha = 0 }, false},
		{"alpha 1", func(c *Config) { c.Alpha = 1 }, true},
		{"alpha 1.1", func(c *Config) { c.Alpha = 1.1 }, false},
		{"no redraws", func(c *Config) { c.Redraws = 0 }, true},
		{"eight redraws", func(c *Config) { c.Redraws = 8 }, true},
		{"nine redraws", func(c *Config) { c.Redraws = 9 }, false},
		{"no slow start", func(c *Config) { c.SlowStart = 0 }, true},
		{"negative slow start", func(c *Config) { c.SlowStart = -1 }, false},
		{"one failure", func(c *Config) { c.ConsecutiveFailures = 1 }, true},
		{"no failure", func(c *Config) { c.ConsecutiveFailures = 0 }, false},
		{"threshold 1", func(c *Config) { c.ErrorRateThreshold = 1 }, false},
		{"eviction 1s", func(c *Config) { c.MaxEviction = time.Second }, true},
		{"eviction 999ms", func(c *Config) { c.MaxEviction = 999 * time.Millisecond }, false},
	} {
		cfg := DefaultConfig()
		c.set(&cfg)
		if err := cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: error is %v, want ok=%v", c.name, err, c.ok)
		}
	}
}
