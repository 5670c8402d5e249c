package activation

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyDescriptorsForThisProcessAreTaken(t *testing.T) {
	for _, c := range []struct {
		passed
		want  []string
		fails bool
	}{
		{passed{"", "", ""}, nil, false},
		{passed{"7", "2", "ingress:ringway.socket"}, []string{"ingress", "ringway.socket"}, false},
		{passed{"7", "2", ""}, []string{"", ""}, false},
		{passed{"7", "0", ""}, nil, false},
		{passed{"8", "2", "a:b"}, nil, false},
		{passed{"7", "", "a"}, nil, false},
		{passed{"", "1", "a"}, nil, false},
		{passed{"7", "2", "a"}, nil, true},
		{passed{"7", "-1", ""}, nil, true},
		{passed{"7", "65", ""}, nil, true},
		{passed{"7", "many", ""}, nil, true},
		{passed{"seven", "1", ""}, nil, true},
	} {
		got, err := parse(c.passed, 7)
		if !slices.Equal(got, c.want) || (err != nil) != c.fails {
			t.Errorf("%+v: %q, %v", c.passed, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("7", "2", "a:b")
	f.Add("7", "99999999999", ":")
	f.Fuzz(func(t *testing.T, pid, count, names string) {
		if got, err := parse(passed{pid, count, names}, 7); len(got) > maxSockets || err != nil && got != nil {
			t.Errorf("%d names, %v", len(got), err)
		}
	})
}

// A process that no service manager started gets no sockets.
func ExampleSockets() {
	sockets, err := Sockets()
	fmt.Println(len(sockets), err)
	// Output: 0 <nil>
}
