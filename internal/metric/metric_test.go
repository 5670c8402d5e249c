package metric_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/ringway/ringway/internal/metric"
)

func Example() {
	reg := prometheus.NewRegistry()
	doors := metric.With(reg).CounterVec("doors_total", "Doors that moved.", "direction")
	metric.StartAtZero(doors, "opened", "closed")
	doors.WithLabelValues("opened").Inc()

	families, err := reg.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(os.Stdout, f); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// # HELP doors_total Doors that moved.
	// # TYPE doors_total counter
	// doors_total{direction="closed"} 0
	// doors_total{direction="opened"} 1
}

func TestCheckedKeepsTheFirstErrorAndRegistersNothingAfterIt(t *testing.T) {
	reg := prometheus.NewRegistry()
	checked := &metric.Checked{Registerer: reg}
	factory := metric.With(checked)
	factory.Counter("a_total", "A.")
	factory.Gauge("a_total", "The name is taken.")
	factory.Counter("b_total", "B.")
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || checked.Err == nil {
		t.Errorf("%v, %v, %v; want a_total alone, and the error of the second one", families, err, checked.Err)
	}
	none := &metric.Checked{}
	metric.With(none).Counter("a_total", "A.")
	if none.Err != nil {
		t.Errorf("without a registerer: %v", none.Err)
	}
}
