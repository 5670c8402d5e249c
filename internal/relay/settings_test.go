package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/settings"
)

func load(t *testing.T, args ...string) (Settings, error) {
	t.Helper()
	s := DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	set.BindFlags(flags)
	if err := flags.Parse(append([]string{"--cluster", "test", "--environment", "ci", "--id", "r1"}, args...)); err != nil {
		t.Fatal(err)
	}
	err := set.Load(settings.Sources{})
	return s, err
}

func TestTheSkipListIsReadByService(t *testing.T) {
	for text, want := range map[string]map[string][]string{
		"":                              {},
		"echo=r1":                       {"echo": {"r1"}},
		"echo=r1,echo=r2,billing.v2=r1": {"echo": {"r1", "r2"}, "billing.v2": {"r1"}},
		"echo=r=1":                      {"echo": {"r=1"}}, // no relay has such an id, and none is skipped
	} {
		var args []string
		for part := range strings.SplitSeq(text, ",") {
			if part != "" {
				args = append(args, "--skip-relay", part)
			}
		}
		s, err := load(t, args...)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil || !reflect.DeepEqual(cfg.Plans.Skip, want) {
			t.Errorf("%q: %v, %v, want %v", text, cfg.Plans.Skip, err, want)
		}
	}
}

func TestWhatCannotBeSkippedIsRefusedWithItsReason(t *testing.T) {
	for _, text := range []string{"echo", "=r1", "echo=", "no service=r1", "-echo=r1", "="} {
		_, err := load(t, "--skip-relay", "good=r1", "--skip-relay", text)
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Setting != "skip-relay" || problems[0].Value != text || problems[0].Allowed != "SERVICE=RELAY" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAClientsShareIsANumberOrAPercentage(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "7": 7, "5%": 10, "100%": 200, "1%": 2, "auto": ingress.ShareOfFree} {
		s, err := load(t, "--max-in-flight", "200", "--max-in-flight-per-client", text)
		if n := s.requests().MaxInFlightPerClient; err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
	if n := (clientShare{n: 1, percent: true}).of(7); n != 1 {
		t.Errorf("1%% of 7 is %d: nothing would be let in", n)
	}
	for _, args := range [][]string{
		{"--max-in-flight-per-client", "0%"}, {"--max-in-flight-per-client", "101%"}, {"--max-in-flight-per-client", "-1"}, {"--max-in-flight-per-client", "all"},
		{"--trusted-proxy", "10.0.0.1"}, {"--trusted-proxy", "::ffff:10.0.0.0/104"}, {"--trusted-proxy", "front"},
	} {
		if _, err := load(t, args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestTheTimeOfAnAttemptIsADurationOrAPercentageOfTheRequests(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 3300 * time.Millisecond, "0": 0, "2s": 2 * time.Second, "50%": 5 * time.Second, "100%": 10 * time.Second} {
		args := []string{"--request-timeout", "10s"}
		if text != "" {
			args = append(args, "--attempt-timeout", text)
		}
		s, err := load(t, args...)
		if limit := s.requests().AttemptTimeout; err != nil || limit != want {
			t.Errorf("%q: %v, %v, want %v", text, limit, err, want)
		}
	}
	for _, text := range []string{"-1s", "0%", "101%", "1.5%", "soon", "%"} {
		if _, err := load(t, "--attempt-timeout", text); err == nil || !strings.Contains(err.Error(), "--attempt-timeout") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Zero means "none" to an operator, and the default to some of the packages below.
func TestAZeroTurnsOffWhatKeepsConnections(t *testing.T) {
	s, err := load(t, "--peer-drain-delay", "0s", "--peer-slack", "0", "--member-grace", "0s")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil || cfg.Links.DrainDelay >= 0 || cfg.Links.Slack != 0 || cfg.Links.Grace != 0 {
		t.Errorf("%+v, %v", cfg.Links, err)
	}
	s, err = load(t, "--peer-drain-delay", "7s", "--peer-slack", "4", "--member-grace", "9s", "--min-peers-per-tier", "5", "--strategy", "rendezvous")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err = s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil || cfg.Links.DrainDelay != 7*time.Second || cfg.Links.Slack != 4 || cfg.Links.Grace != 9*time.Second || cfg.Plans.PeersPerTier != 5 || cfg.Plans.Strategy != "rendezvous" {
		t.Errorf("%+v %+v, %v", cfg.Links, cfg.Plans, err)
	}
	for _, args := range [][]string{{"--peer-slack", "-1"}, {"--member-grace", "-1s"}, {"--peer-drain-delay", "-1s"}, {"--min-peers-per-tier", "0"}, {"--strategy", "dice"}} {
		if _, err := load(t, args...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(args[0], "--")) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestServiceNamesAreRequiredOnlyWithCertificates(t *testing.T) {
	if _, err := load(t, "--require-service-names"); err == nil || !strings.Contains(err.Error(), "require-service-names") || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("without certificates: %v", err)
	}
	certified := []string{"--require-service-names", "--tls-cert", "a.crt", "--tls-key", "a.key", "--tls-ca", "ca.crt"}
	if _, err := load(t, append([]string{"--identity-template", "spiffe://shop.test/{environment}/{cluster}/{role}/{node}"}, certified...)...); err == nil || !strings.Contains(err.Error(), "require-service-names") || !strings.Contains(err.Error(), "without --identity-template") {
		t.Errorf("with certificates that name none: %v", err)
	}
	s, err := load(t, certified...)
	if err != nil || !s.rules().RequireServiceNames {
		t.Errorf("%+v, %v", s.rules(), err)
	}
	if s, err = load(t); err != nil || s.rules().RequireServiceNames {
		t.Errorf("by default: %+v, %v", s.rules(), err)
	}
}

func TestWhatWorkersMayOfferIsSet(t *testing.T) {
	s, err := load(t, "--max-relays-per-service", "7", "--max-services", "50", "--max-services-per-record", "5", "--new-services-per-minute", "6",
		"--endpoint-allowed-cidr", "10.1.2.3/16", "--endpoint-allowed-cidr", "2001:db8::/32", "--allow-clear-text", "legacy")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil || cfg.Plans.MaxRelaysPerService != 7 || !reflect.DeepEqual(cfg.AllowClearText, []string{"legacy"}) ||
		fmt.Sprint(cfg.Rules) != "{false [10.1.0.0/16 2001:db8::/32] false 50 5 6}" {
		t.Errorf("%+v %+v %v, %v", cfg.Plans, cfg.Rules, cfg.AllowClearText, err)
	}
	for _, args := range [][]string{
		{"--max-relays-per-service", "0"}, {"--max-relays-per-service", "1025"}, {"--max-services", "0"}, {"--max-services-per-record", "1025"},
		{"--new-services-per-minute", "0"}, {"--endpoint-allowed-cidr", "10.0.0.1"}, {"--allow-clear-text", "no/name"},
	} {
		if _, err := load(t, args...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(args[0], "--")) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestTheRelaysOfAServiceAreANumberOrAutomatic(t *testing.T) {
	for text, want := range map[string]int{"auto": 0, "3": 3, "40": 40} {
		s, err := load(t, "--relays-per-service", text)
		if err != nil || s.Plans.RelaysPerService != want {
			t.Errorf("%s: %d, %v", text, s.Plans.RelaysPerService, err)
		}
	}
	for _, text := range []string{"0", "-1", "1", "2", "many", ""} {
		if _, err := load(t, "--relays-per-service", text); err == nil || !strings.Contains(err.Error(), "relays-per-service") || !strings.Contains(err.Error(), "auto, or a whole number of 3 or more") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAServiceHasNoFewerRelaysThanItsWorkersNeed(t *testing.T) {
	_, err := load(t, "--relays-per-service", "4", "--min-peers-per-worker", "5")
	if err == nil || !strings.Contains(err.Error(), `--relays-per-service "4"`) || !strings.Contains(err.Error(), "--min-peers-per-worker (5)") || !strings.Contains(err.Error(), "auto, or a whole number of 5 or more") {
		t.Errorf("four relays for a service whose workers need five: %v", err)
	}
	for _, enough := range []string{"5", "auto"} {
		if _, err := load(t, "--relays-per-service", enough, "--min-peers-per-worker", "5"); err != nil {
			t.Errorf("%s: %v", enough, err)
		}
	}
}

func TestNamesOfServersAreReadByService(t *testing.T) {
	s, err := load(t, "--service-server-name", "all.example", "--service-server-name", "billing=billing.example,db = ::1")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if want := map[string]string{"": "all.example", "billing": "billing.example", "db": "::1"}; err != nil || !reflect.DeepEqual(cfg.ServiceTLS.Names, want) || cfg.ServiceTLS.Roots != nil {
		t.Errorf("%+v, %v", cfg.ServiceTLS, err)
	}
	for _, text := range []string{"=a", "no service=a", "good=again", "echo=", "echo=a=b", "*.example"} {
		if _, err := load(t, "--service-server-name", "good=a", "--service-server-name", text); err == nil || !strings.Contains(err.Error(), "service-server-name") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
