package ringwaytest_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/ringway/ringway/ringwaytest"
)

// A relay and two workers, of which one is killed. In a test, t is that of the test.
func Example() {
	synctest.Test(new(testing.T), func(t *testing.T) {
		fleet := ringwaytest.New(t)
		relay := fleet.StartRelay("relay-1")
		for _, id := range []string{"worker-1", "worker-2"} {
			fleet.StartWorker(id, http.NotFoundHandler(), "orders")
		}
		fleet.Settle() // all know each other

		fleet.Kill("worker-2") // the relay does not know yet, and tries again
		resp, err := (&http.Client{Transport: relay}).Get("http://orders/17")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println("answer:", resp.Status)

		fleet.Settle() // the relay does
		endpoints, _ := relay.Endpoints("orders")
		fmt.Println("workers:", len(endpoints), endpoints[0].NodeID)
	})
	// Output:
	// answer: 404 Not Found
	// workers: 1 worker-1
}
