package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/membership"
)

// KeysCommand is `keys`: it manages the gossip keys of the whole fleet through the admin
// API of one relay. It needs that address and no other setting of a relay.
func KeysCommand() *cobra.Command {
	root := &cobra.Command{Use: "keys", Short: "list and rotate the gossip keys of the fleet", Args: cobra.NoArgs,
		Long: "A rotation needs no restart: generate a key, install it, use it, remove the old one.\n" +
			"Each step goes to every live member; use waits until all of them have the key.\n" +
			"A file that every user of the machine can read is refused: run umask 077 first.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	root.Example = "  relay keys generate > next.key\n  relay keys install next.key\n  relay keys list"
	call := relayCall(root.PersistentFlags())

	change := func(operation membership.KeyOperation, use, short, example string, argument func(*cobra.Command, string) (string, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Example: example, Args: arguments(cobra.ExactArgs(1)), RunE: func(cmd *cobra.Command, args []string) error {
			text, err := argument(cmd, args[0])
			if err != nil {
				return err
			}
			body, err := json.Marshal(api.KeysRequest{Operation: operation, Argument: text})
			if err != nil {
				return err
			}
			if operation == membership.InstallKey {
				call.secret = "key"
			}
			return callKeys(cmd, call, http.MethodPost, body)
		}}
	}
	asIs := func(_ *cobra.Command, text string) (string, error) { return text, nil }
	list := &cobra.Command{Use: "list", Short: "which member has which keys", Example: "  relay keys list\n  relay keys list --watch", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return callKeys(cmd, call, http.MethodGet, nil)
	}}
	call.watchable(list.Flags())
	importing := importKeysCommand()
	importing.Example = "  relay keys import /run/secrets/gossip.key /var/lib/ringway/gossip.key"
	root.AddCommand(
		&cobra.Command{Use: "generate", Short: "print a new key", Example: "  relay keys generate > next.key", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), membership.GenerateKey())
			return err
		}},
		list,
		change(membership.InstallKey, "install FILE", "give every member the key in FILE (- for standard input)", "  relay keys install next.key", readKey),
		change(membership.UseKey, "use FINGERPRINT", "encrypt with an installed key", "  relay keys use 3f9a1c0b", asIs),
		change(membership.RemoveKey, "remove FINGERPRINT", "forget a key that is no longer used", "  relay keys remove 0b5e7d24", asIs),
		importing,
	)
	return root
}

// readKey reads the key from a file, so that the key is in no shell history and in no
// process list.
func readKey(cmd *cobra.Command, file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1024))
	} else if _, err = keyfile.CheckAccess(file); err == nil {
		text, err = keyfile.Read(file)
	}
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	if _, err := membership.ParseKey(string(text)); err != nil {
		return "", fmt.Errorf("read the key in %s: %w", file, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// callKeys prints the progress of an operation even if the operation failed.
func callKeys(cmd *cobra.Command, call *adminCall, method string, body []byte) error {
	var answer api.Keys
	return call.read(cmd, func(ctx context.Context) ([]byte, error) {
		resp, text, err := call.ask(ctx, method, "keys", body)
		if err != nil {
			return nil, err
		}
		answer = api.Keys{}
		switch {
		case json.Unmarshal(text, &answer) != nil:
			return nil, call.misdirected(resp, text)
		case answer.Error != "" && len(answer.Members) == 0: // no member was asked
			return nil, errors.New(answer.Error)
		case answer.Error != "":
			return text, errors.New(answer.Error)
		}
		return text, nil
	}, func(p *page) { keysTable(p, &answer) })
}

func keysTable(p *page, a *api.Keys) {
	if len(a.Members) == 0 {
		return
	}
	t := p.table("MEMBER", "IN USE", "ALSO INSTALLED", "ERROR")
	for _, m := range a.Members {
		inUse, others := "", ""
		if len(m.Fingerprints) > 0 {
			inUse, others = m.Fingerprints[0], strings.Join(m.Fingerprints[1:], " ")
		}
		t.add(m.Member, inUse, others, m.Error)
	}
	t.write()
}

// importKeysCommand is `keys import`: it copies the gossip keys from a file that a member
// must not write, such as a mounted secret, to a file that belongs to the member.
func importKeysCommand() *cobra.Command {
	return &cobra.Command{Use: "import SECRET FILE", Short: "copy gossip keys from a read-only secret to a member's own file", Args: arguments(cobra.ExactArgs(2)),
		Long: "Rotations are written back to --gossip-key-file, and no other user may read it, so a\n" +
			"mounted secret cannot be that file. Run this before the member: it writes FILE\n" +
			"with mode 600. A FILE that is there is left alone, for its keys may be newer than\n" +
			"the secret.",
		RunE: func(cmd *cobra.Command, args []string) error {
			said, err := importKeys(args[0], args[1])
			if err != nil {
				return fmt.Errorf("import gossip keys: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		}}
}

// importKeys returns a message about the result. FILE is created complete or not at all.
func importKeys(secret, file string) (said string, err error) {
	kept := fmt.Sprintf("%s is there already and is left alone", file)
	if _, err := os.Lstat(file); err == nil {
		return kept, nil
	}
	text, err := keyfile.Read(secret)
	if err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".keys-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("%w: the directory must be there and writable", err)
	}
	defer func() { err = errors.Join(err, os.Remove(temp.Name())) }()
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return "", err
	}
	keys, err := membership.OpenKeyring(temp.Name())
	if err != nil {
		return "", fmt.Errorf("%s: %w", secret, err)
	}
	// Unlike a rename, a link never replaces a file.
	switch err := os.Link(temp.Name(), file); {
	case errors.Is(err, fs.ErrExist):
		return kept, nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("%s has the keys %v", file, keys.Fingerprints()), nil
}
