package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
)

// keysTimeout covers a use that waits for members to have the key.
const keysTimeout = 30 * time.Second

// KeysCommand is `keys`: the gossip keys of the whole fleet, through the admin
// API of one relay. It needs that address and no other setting of a relay.
func KeysCommand() *cobra.Command {
	root := &cobra.Command{Use: "keys", Short: "list and rotate the gossip keys of the fleet", Args: cobra.NoArgs,
		Long: "A rotation needs no restart: generate a key, install it, use it, remove the old one.\n" +
			"Each step goes to every live member; use waits until all of them have the key.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	output, admin := "table", cmp.Or(os.Getenv("RINGWAY_ADMIN_ADDR"), "127.0.0.1:"+daemon.RelayAdminPort)
	root.PersistentFlags().StringVar(&admin, "admin-addr", admin, "address of a relay's admin API, or RINGWAY_ADMIN_ADDR")
	root.PersistentFlags().StringVarP(&output, "output", "o", output, "table or json")

	change := func(operation membership.KeyOperation, use, short string, argument func(*cobra.Command, string) (string, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			text, err := argument(cmd, args[0])
			if err != nil {
				return err
			}
			body, err := json.Marshal(relay.KeysRequest{Operation: operation, Argument: text})
			if err != nil {
				return err
			}
			return callKeys(cmd, output, http.MethodPost, admin, body)
		}}
	}
	asIs := func(_ *cobra.Command, text string) (string, error) { return text, nil }
	root.AddCommand(
		&cobra.Command{Use: "generate", Short: "print a new key", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), membership.GenerateKey())
			return err
		}},
		&cobra.Command{Use: "list", Short: "which member has which keys", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return callKeys(cmd, output, http.MethodGet, admin, nil)
		}},
		change(membership.InstallKey, "install FILE", "give every member the key in FILE (- for standard input)", readKey),
		change(membership.UseKey, "use FINGERPRINT", "encrypt with an installed key", asIs),
		change(membership.RemoveKey, "remove FINGERPRINT", "forget a key that is no longer used", asIs),
	)
	return root
}

// readKey takes the key from a file, so that it is in no shell history and in no
// list of processes.
func readKey(cmd *cobra.Command, file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1024))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	if _, err := membership.ParseKey(string(text)); err != nil {
		return "", fmt.Errorf("read the key in %s: %w", file, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func callKeys(cmd *cobra.Command, output, method, admin string, body []byte) error {
	if output != "table" && output != "json" {
		return fmt.Errorf("--output %q: allowed are table, json", output)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), keysTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+admin+"/api/v1/keys", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the relay at %s: %w: is it running, and is --admin-addr right?", admin, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read the relay's answer: %w", err)
	}
	var answer relay.KeysAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("the relay at %s answered %s and no JSON: is this its admin address?", admin, resp.Status)
	}
	if output == "json" {
		if _, err := cmd.OutOrStdout().Write(text); err != nil {
			return err
		}
	} else if len(answer.Members) > 0 {
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "MEMBER\tIN USE\tALSO INSTALLED\tERROR")
		for _, m := range answer.Members {
			inUse, others := "-", "-"
			if len(m.Fingerprints) > 0 {
				inUse = m.Fingerprints[0]
			}
			if len(m.Fingerprints) > 1 {
				others = strings.Join(m.Fingerprints[1:], " ")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Member, inUse, others, m.Error)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
