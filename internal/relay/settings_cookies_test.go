package relay

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/wire"
)

func TestSessionCookiesAreNamedByService(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                           {},
		"echo=sid":                   {"echo": "sid"},
		"echo=sid, billing.v2 = __s": {"echo": "sid", "billing.v2": "__s"},
		"echo=sid,billing=sid":       {"echo": "sid", "billing": "sid"},
		"echo=,billing=sid":          {"echo": "", "billing": "sid"},
	} {
		var args []string
		if text != "" {
			args = []string{"--session-cookie", text}
		}
		s, err := load(t, args...)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil || !maps.Equal(cfg.Strategies.SessionCookies, want) {
			t.Errorf("%q: %v, %v", text, cfg.Strategies.SessionCookies, err)
		}
	}
}

func TestACookieThatNoBrowserWouldTakeIsRefused(t *testing.T) {
	for _, text := range []string{"echo", "=sid", "no service=sid", "echo=s d", "echo=s;d", "echo=a=b", `echo="sid"`, "echo=sïd", "good=again", "echo=" + strings.Repeat("x", wire.MaxCookieName+1)} {
		_, err := load(t, "--session-cookie", "good=sid", "--session-cookie", text)
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Setting != "session-cookie" || problems[0].Value != text || problems[0].Allowed == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}
