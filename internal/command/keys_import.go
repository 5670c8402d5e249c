package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/membership"
)

// importKeysCommand is `keys import`: the gossip keys of a file that a member must
// not write, such as a mounted secret, become a file of its own.
func importKeysCommand() *cobra.Command {
	return &cobra.Command{Use: "import SECRET FILE", Short: "copy gossip keys from a read-only secret to a member's own file", Args: arguments(cobra.ExactArgs(2)),
		Long: "Rotations are written back to --gossip-key-file, and nobody else may read it, so a\n" +
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

// importKeys says what it did. FILE appears whole or not at all.
func importKeys(secret, file string) (said string, err error) {
	kept := fmt.Sprintf("%s is there already and is left alone", file)
	if _, err := os.Lstat(file); err == nil {
		return kept, nil
	}
	text, err := os.ReadFile(secret)
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
	// Unlike a rename, a link never replaces.
	switch err := os.Link(temp.Name(), file); {
	case errors.Is(err, fs.ErrExist):
		return kept, nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("%s has the keys %v", file, keys.Fingerprints()), nil
}
