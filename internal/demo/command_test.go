package demo

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestAFlagOfTheDaemonIsRefusedByName(t *testing.T) {
	root := &cobra.Command{Use: "relay", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("cluster", "", "")
	root.AddCommand(Command())
	root.SetArgs([]string{"demo", "--cluster", "prod"})
	err := root.Execute()
	if err == nil || !strings.Contains(err.Error(), `--cluster "prod"`) {
		t.Errorf("error %v; want it to name --cluster and the value", err)
	}
}
