package presence

import "fmt"

// A relay lists a worker that restarts, and a reader of the list learns of both changes.
func Example() {
	list := &log{list: *newList()}
	list.put(listed{instance: instance{"worker-1", 1}, sequence: 1})
	list.put(listed{instance: instance{"worker-1", 2}, sequence: 1})
	frames, _ := list.after(1)
	for _, c := range frames {
		for _, g := range c.gone {
			fmt.Println("gone:", g.id, "of epoch", g.epoch)
		}
		for _, w := range c.listed {
			fmt.Println("listed:", w.id, "of epoch", w.epoch)
		}
	}
	// Output:
	// gone: worker-1 of epoch 1
	// listed: worker-1 of epoch 2
}
