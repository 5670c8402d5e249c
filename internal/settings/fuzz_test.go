package settings_test

import (
	"errors"
	"testing"

	"github.com/ringway/ringway/internal/settings"
)

// FuzzLoad promises that no file and no environment makes Load panic, that every
// failure is a list of problems with a text, and that a failure changes nothing.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"cluster: a\njoin: [x, y]\nroutes:\n- {host: h, service: s}\n",
		"cluster: &a b\njoin: [*a]\n", "a: &a [*a]\n", "<<: {cluster: a}\n", "? [x]\n: y\n", "- a\n", "cluster: !!binary aGk=\n",
		"routes: &r\n- {service: s}\ncluster: *r\n", "---\n---\n", "\t", "cluster: \"\\ud800\"\n", "routes: {<<: 1}\n", "1: 2\nnull: 3\n",
	} {
		f.Add([]byte(seed), "30")
	}
	f.Fuzz(func(t *testing.T, body []byte, value string) {
		cfg := defaults()
		s := declare(cfg)
		err := s.Load(settings.Sources{
			Environ:  []string{"RINGWAY_DRAIN_DELAY=" + value, "RINGWAY_GOSSIP_ADDR=" + value, "RINGWAY_" + value},
			File:     "relay.yaml",
			ReadFile: func(string) ([]byte, error) { return body, nil },
		})
		for _, v := range s.Values() {
			_ = v.Origin.String()
		}
		if err == nil {
			if cfg.Cluster == "" || cfg.Peers < 3 || cfg.Wait <= 0 {
				t.Fatalf("accepted an invalid configuration: %+v", cfg)
			}
			return
		}
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("not a list of problems: %v", err)
		}
		for _, p := range problems {
			if p.Reason == "" {
				t.Fatalf("a problem without a reason: %#v", p)
			}
		}
		if cfg.Cluster != "" || cfg.Peers != 3 || cfg.Routes != nil {
			t.Fatalf("a failed load changed the configuration: %+v", cfg)
		}
	})
}
