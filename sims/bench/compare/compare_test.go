package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
)

func BenchmarkSelect(b *testing.B) {
	for _, s := range sides {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", s.name, n), func(b *testing.B) {
				newOperation, err := s.prepare(n)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					op := newOperation()
					for pb.Next() {
						if err := op(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

func TestEverySelectorIsInTheTableAtEverySizeAndNumberOfProcessors(t *testing.T) {
	var out strings.Builder
	if err := run(&out, config{procs: []int{1, 2}, rounds: 1, span: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, n := range sizes {
		for _, procs := range []int{1, 2} {
			for _, s := range sides {
				found := false
				for line := range strings.Lines(out.String()) {
					found = found || strings.HasPrefix(strings.Join(strings.Fields(line), " "), fmt.Sprintf("%d %d %s ", n, procs, s.name))
				}
				if !found {
					t.Errorf("no line for %s with %d endpoints on %d processors in\n%s", s.name, n, procs, out.String())
				}
			}
		}
	}
}

func TestTheCheckFailsAtMoreThanHalfOfKratosAndAtAnAllocation(t *testing.T) {
	for _, c := range []struct {
		ours figure
		want string // in the error; empty: none
	}{
		{figure{cpu: 50}, ""},
		{figure{cpu: 51}, "0.51 of go-kratos"},
		{figure{cpu: 50, allocs: 1}, "allocates 1.000 times"},
	} {
		figures := make([][]figure, len(sides))
		for i := range figures {
			figures[i] = []figure{{cpu: 100}}
		}
		figures[timeGiven] = []figure{c.ours}
		err := cell{endpoints: 8, procs: 1, figures: figures}.judge()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("ours %+v: %v; want %q", c.ours, err, c.want)
		}
	}
}

// The balancers of others are driven through stand-ins for a channel; these
// must not spoil what they choose.
func TestThePickersOfGrpcUseAllEndpointsAndPreferIdleOnes(t *testing.T) {
	const endpoints = 8
	leastRequest, err := leastRequestPicker(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	for name, picker := range map[string]balancer.Picker{"least request": leastRequest, "go-zero": goZeroPicker(endpoints)} {
		held := make(map[balancer.SubConn]int) // requests that never end
		for range 100 * endpoints {
			result, err := picker.Pick(balancer.PickInfo{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			held[result.SubConn]++
		}
		if len(held) != endpoints {
			t.Errorf("%s: %d of %d endpoints are used", name, len(held), endpoints)
		}
		for _, requests := range held {
			// Two choices keep the fullest within a few of the mean; blind draws
			// would spread by 100 ± 30.
			if name == "least request" && (requests < 95 || requests > 105) {
				t.Errorf("%s: an endpoint holds %d requests; want about 100", name, requests)
			}
		}
	}
}
