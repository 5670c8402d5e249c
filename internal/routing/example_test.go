package routing_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// A service is what a request needs: a balancer over the targets of its route.
// A Router keeps the route up to date.
func ExampleService() {
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = service.Endpoints.Pick(0, nil)
	fmt.Println(err)

	worker := &routing.Target{ID: "w1.1", Node: "w1", Address: "10.0.0.1:9000", Weight: 1}
	if err := service.SetRoute(&routing.Route{Range: []*routing.Target{worker}}, 0); err != nil {
		fmt.Println(err)
		return
	}
	pick, _ := service.Endpoints.Pick(0, nil)
	fmt.Println(pick.Value().Node)
	// Output:
	// selection: no endpoint to pick: the range is empty; wait for workers to advertise the service
	// w1
}
