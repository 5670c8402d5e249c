package scenario_test

import (
	"context"
	"fmt"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// A scenario declares what it varies and what must hold, and measures in Run.
func Example() {
	coin := scenario.Scenario{
		Name: "coin",
		Asks: "Is the coin fair?",
		Settings: []scenario.Setting{
			{Name: "throws", Help: "how often it is thrown", Unit: "throws", Default: 10_000, Quick: 100, Min: 1, Max: 1_000_000},
		},
		Promises: []scenario.Promise{
			{Name: "share of heads", Relation: scenario.AtMost, Bound: 0.52, Why: "four standard deviations"},
		},
		Run: func(r *scenario.Run) error {
			random, heads := r.Rand("coin"), 0
			for range r.Int("throws") {
				heads += random.IntN(2)
			}
			share := float64(heads) / float64(r.Int("throws"))
			t := r.Table(scenario.Table{Name: "heads", Title: "heads", Columns: []scenario.Column{{Name: "throws", Key: true}, {Name: "share", Digits: 2}}})
			t.Add(r.Int("throws"), share)
			r.Check("share of heads", share, fmt.Sprintf("%d throws", r.Int("throws")))
			return nil
		},
	}
	result, err := scenario.Execute(context.Background(), coin, scenario.Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	t := result.Tables[0]
	fmt.Println(t.Columns[1].Text(t.Rows[0][1]), len(result.Violations()))
	_, err = scenario.Execute(context.Background(), coin, scenario.Options{Set: []string{"throw=5"}})
	fmt.Println(err)
	// Output:
	// 0.50 0
	// scenario coin has no setting "throw": it has throws
}
