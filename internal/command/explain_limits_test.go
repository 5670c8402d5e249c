package command

import (
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
)

func TestExplainShowsTheLimitsAndBlocksOfAService(t *testing.T) {
	x := &api.Explanation{
		Service: "billing", Demand: 123.4,
		Limits: api.Limits{
			NotForClients: true,
			RateLimits: []api.RateLimit{
				{Of: "service", Rate: "500/s", Share: 0.5, PerSecond: 250, Refused: 7},
				{Of: "caller", Subject: "*", Rate: "30/m", Burst: 10},
			},
			Blocks: []api.Block{{Caller: "*", Service: "billing", Origin: "command", Until: time.Unix(0, 0), Reason: "repair", Refused: 3}},
		},
	}
	text := shown(formTable, false, func(p *page) { explainTable(p, x) })
	for _, want := range []string{
		"clients  get 404 unknown_service: --ingress-service of this relay does not have the service\n",
		"blocked  for all callers, by command, until 1970-01-01T00:00:00Z, repair; 3 refused\n",
		"arrives  123/s\n",
		"limit    service: 500/s; 50 % at this relay, 250/s; 7 refused\n",
		"limit    caller *: 30/m, burst 10; the relays that serve it count\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
