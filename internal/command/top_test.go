package command

import (
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
)

func TestTheCallersOfAWindowAreTakenFromTheLinesOfATap(t *testing.T) {
	c := &callers{}
	take := func(line string) {
		t.Helper()
		if err := c.take([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	take(`{"ringway.caller":"c0","http.response.status_code":200,"ringway.first_byte_ms":3}`)
	take(`{"ringway.caller":"c0","error.type":"timeout","ringway.duration_ms":20000}`)
	take(`{"ringway.caller":"c0","rpc.response.status_code":"UNAVAILABLE","http.response.status_code":200}`)
	take(`{"ringway.tap.dropped":9}`)
	if err := c.take([]byte("<html>")); err == nil {
		t.Error("a line that is no record was taken")
	}
	rows, dropped, err := c.next()
	if err != nil || dropped != 9 || len(rows) != 1 || rows[0].Name != "c0" || rows[0].Requests != 3 || rows[0].Errors != 2 {
		t.Errorf("%+v, dropped %d, %v", rows, dropped, err)
	}
	if rows, dropped, _ = c.next(); len(rows) != 0 || dropped != 0 {
		t.Errorf("%+v, dropped %d", rows, dropped)
	}
}

func TestRowsAreInTheOrderAskedFor(t *testing.T) {
	few, many := int64(1), int64(5)
	rows := []api.TopRow{
		{Name: "w10", Requests: 5, Errors: 0, InFlight: &few, P99Ms: 1}, {Name: "w2", Requests: 5, Errors: 2, InFlight: &few, P99Ms: 9}, {Name: "w1", Requests: 1, InFlight: &many},
	}
	for order, want := range map[string]string{"requests": "w2 w10 w1", "errors": "w2 w1 w10", "in-flight": "w1 w2 w10", "latency": "w2 w10 w1", "name": "w1 w2 w10"} {
		doc := &TopDocument{Rows: append([]api.TopRow{}, rows...)}
		(&top{sort: order}).finish(doc, 2*time.Second)
		var names []string
		for _, r := range doc.Rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want || doc.Rows[0].RequestsPerSecond != float64(doc.Rows[0].Requests)/2 {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
}
