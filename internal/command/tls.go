package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

const (
	authorityCert = "ca.crt"
	authorityKey  = "ca.key"
	day           = 24 * time.Hour
	mostDays      = 36500
	// certDays is short, so that a stolen certificate expires soon and a broken weekly
	// renewal is noticed.
	certDays = 30
)

// nameRule is the rule for names in certificates; the fleet accepts no others.
var nameRule = settings.Matching(regexp.MustCompile(`[a-zA-Z0-9._-]{1,63}`), "1 to 63 letters, digits, '.', '_' and '-'")

// TLSCommand is `tls`: it creates an authority and certificates for a fleet without its own
// PKI, and inspects certificates.
func TLSCommand(process string) *cobra.Command {
	group := func(use, short string, verbs ...*cobra.Command) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
		c.AddCommand(verbs...)
		return c
	}
	root := group("tls", "create and show certificates",
		group("ca", "the authority that all members trust", authorityCommand()),
		group("cert", "certificates of members and clients", certificateCommand()),
		certificateInfoCommand(), rolesCommand())
	walk(root, func(c *cobra.Command) bool { // the examples name the binary that shows them
		c.Example = strings.ReplaceAll(c.Example, "  relay ", "  "+process+" ")
		return true
	})
	root.Long = "Every member and client proves by its certificate who it is: role, cluster,\n" +
		"environment, datacenter and node are URI names in it, and the services that a worker\n" +
		"may offer. These commands make an\n" +
		"authority and such certificates; any other authority that writes the same names\n" +
		"serves as well. Files are never overwritten."
	return root
}

// verb binds a set of settings to a command, which reports all invalid flags together.
func verb(c *cobra.Command, set *settings.Set, run func(stdout io.Writer, args []string) error) *cobra.Command {
	set.BindFlags(c.Flags())
	_ = c.Flags().MarkHidden("config") // fails only if the flag does not exist
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := set.Load(settings.Sources{Environ: os.Environ()}); err != nil {
			return err
		}
		return run(c.OutOrStdout(), args)
	}
	return c
}

func authorityCommand() *cobra.Command {
	set := settings.New("tls ca create", "RINGWAY_CA_CREATE")
	out, name, days := "", "ringway", 3650
	settings.String(set, &out, settings.Spec{Name: "out", Required: true, Placeholder: "DIR", Usage: "directory for " + authorityCert + " and " + authorityKey + "; made if it is not there"})
	settings.Int(set, &days, settings.Spec{Name: "days", Usage: "days that it lasts"}, settings.Between(1, mostDays))
	settings.String(set, &name, settings.Spec{Name: "name", Usage: "its common name, for people"},
		settings.Matching(regexp.MustCompile(`[ -~]{1,64}`), "1 to 64 printable ASCII characters"))
	set.Check(func() []settings.Problem {
		return taken("out", out, filepath.Join(out, authorityCert), filepath.Join(out, authorityKey))
	})
	return verb(&cobra.Command{
		Use: "create", Short: "make an authority", Args: cobra.NoArgs,
		Example: "  relay tls ca create --out ca --days 3650 --name shop",
	}, set, func(stdout io.Writer, _ []string) error {
		a, err := identity.NewAuthority(identity.AuthorityConfig{Name: name, Validity: time.Duration(days) * day})
		if err != nil {
			return err
		}
		key, err := a.KeyPEM()
		if err != nil {
			return err
		}
		files := pair{cert: filepath.Join(out, authorityCert), key: filepath.Join(out, authorityKey)}
		if err := files.write(a.CertificatePEM(), key); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "authority  %s, until %s\ntrust      %s\nkey        %s: keep it away from the fleet; its holder can impersonate any member\n",
			a.Certificate().Subject.CommonName, a.Certificate().NotAfter.Format(time.DateOnly), files.cert, files.key)
		return err
	})
}

func certificateCommand() *cobra.Command {
	set := settings.New("tls cert create", "RINGWAY_CERT_CREATE")
	var claims identity.Claims
	var ca, out string
	var services []string
	days, keys := certDays, identity.Ed25519
	required := func(target *string, name, usage string) {
		settings.String(set, target, settings.Spec{Name: name, Required: true, Usage: usage}, nameRule)
	}
	settings.String(set, &ca, settings.Spec{Name: "ca", Required: true, Placeholder: "DIR", Usage: "directory of the authority, from tls ca create"})
	settings.Enum(set, &claims.Role, settings.Spec{Name: "role", Required: true, Usage: "what the holder does"}, identity.Roles()...)
	required(&claims.Node, "node", "stable id of the holder, its --id")
	required(&claims.Cluster, "cluster", "cluster it belongs to")
	required(&claims.Environment, "environment", "environment it belongs to")
	settings.String(set, &claims.Datacenter, settings.Spec{Name: "datacenter", Usage: "datacenter it is in; empty: the certificate names none"}, nameRule)
	settings.Strings(set, &services, settings.Spec{Name: "service", Placeholder: "NAME",
		Usage: "service that the worker may offer, or a prefix such as api-*, or * for all; without any the certificate names none; may be repeated"})
	settings.Int(set, &days, settings.Spec{Name: "days", Usage: "days that it lasts, within the life of the authority"}, settings.Between(1, mostDays))
	settings.Enum(set, &keys, settings.Spec{Name: "key-type", Usage: "type of its key; a browser that opens the admin address of its holder needs ecdsa-p256"}, identity.Ed25519, identity.ECDSAP256)
	settings.String(set, &out, settings.Spec{Name: "out", Required: true, Placeholder: "PREFIX|DIR/", Usage: "where to write: PREFIX.crt and PREFIX.key, or NODE.crt and NODE.key in a directory"})
	set.Check(func() []settings.Problem {
		var problems []settings.Problem
		var err error
		if claims.Services, err = identity.ParseServiceNames(services...); err != nil {
			problems = append(problems, settings.Problem{Setting: "service", Reason: err.Error(), Allowed: "names of services, such as billing or api-*"})
		} else if claims.Services != "" && claims.Role != identity.RoleWorker {
			problems = append(problems, settings.Problem{Setting: "service", Related: []string{"role"}, Reason: "only workers offer services", Allowed: "--role worker"})
		}
		if out != "" && claims.Node != "" {
			files := pairAt(out, claims.Node)
			problems = append(problems, taken("out", out, files.cert, files.key)...)
		}
		if ca != "" {
			a, err := loadAuthority(ca)
			if err != nil {
				return append(problems, settings.Problem{Setting: "ca", Reason: err.Error(), Allowed: "the directory that tls ca create --out made"})
			}
			if left := int(time.Until(a.Certificate().NotAfter) / day); days > left {
				problems = append(problems, settings.Problem{Setting: "days", Related: []string{"ca"},
					Reason: "the certificate would outlive its authority", Allowed: fmt.Sprintf("1 to %d, or a new authority", left)})
			}
		}
		return problems
	})
	return verb(&cobra.Command{
		Use: "create", Short: "issue a certificate", Args: cobra.NoArgs,
		Example: "  relay tls cert create --ca ca --role relay --node relay-1 --cluster shop --environment prod --out certs/\n" +
			"  relay tls cert create --ca ca --role worker --node worker-1 --service billing --cluster shop --environment prod --out certs/",
	}, set, func(stdout io.Writer, _ []string) error {
		a, err := loadAuthority(ca)
		if err != nil {
			return err
		}
		cert, key, err := a.IssueKey(keys, claims, time.Duration(days)*day)
		if err != nil {
			return fmt.Errorf("--days %d: %w", days, err)
		}
		files := pairAt(out, claims.Node)
		if err := files.write(cert, key); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "holder       %s, until %s\n%scertificate  %s\nkey          %s\ntrust        %s\n",
			claims, time.Now().Add(time.Duration(days)*day).UTC().Format(time.DateOnly), servicesLine("services     ", claims), files.cert, files.key, filepath.Join(ca, authorityCert))
		return err
	})
}

// servicesLine returns the line about the services that a certificate names, empty if it names
// none.
func servicesLine(head string, claims identity.Claims) string {
	if claims.Services == "" {
		return ""
	}
	return head + strings.ReplaceAll(claims.Services, ",", " ") + "\n"
}

func loadAuthority(dir string) (*identity.Authority, error) {
	cert, certErr := keyfile.Read(filepath.Join(dir, authorityCert))
	key, keyErr := keyfile.Read(filepath.Join(dir, authorityKey))
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("no authority there: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return identity.LoadAuthority(cert, key, nil)
}

// pair is the paths of a certificate and its key.
type pair struct{ cert, key string }

// pairAt returns the paths for --out: in the directory, if out exists as one or ends with a
// slash; otherwise out is the prefix of the file names.
func pairAt(out, node string) pair {
	stat, err := os.Stat(out)
	if strings.HasSuffix(out, "/") || strings.HasSuffix(out, string(filepath.Separator)) || err == nil && stat.IsDir() {
		return pair{cert: filepath.Join(out, node+".crt"), key: filepath.Join(out, node+".key")}
	}
	return pair{cert: out + ".crt", key: out + ".key"}
}

// taken reports the files that exist already.
func taken(setting, value string, paths ...string) []settings.Problem {
	if value == "" {
		return nil
	}
	var there []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			there = append(there, path)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return []settings.Problem{{Setting: setting, Reason: "nothing is overwritten, and there is already " + strings.Join(there, " and "),
		Allowed: "another place, or move them away first"}}
}

// write creates both files, or none. Only the owner can read the key.
func (p pair) write(cert, key []byte) error {
	if err := os.MkdirAll(filepath.Dir(p.key), 0o700); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	if err := create(p.key, key, 0o600); err != nil {
		return err
	}
	if err := create(p.cert, cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(p.key))
	}
	return nil
}

// create writes a file that must not exist yet; it removes an incomplete file.
func create(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: nothing is overwritten; choose another --out, or move it away first", err)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// fileInfo is one certificate of a file.
type fileInfo struct {
	File string `json:"file"`
	identity.Info
}

func certificateInfoCommand() *cobra.Command {
	set := settings.New("tls info", "RINGWAY_TLS_INFO")
	form := form{output: formTable}
	settings.Enum(set, &form.output, settings.Spec{Name: "output", Letter: "o", Usage: "form of the output"}, forms...)
	template := ""
	settings.String(set, &template, settings.Spec{Name: "identity-template", Placeholder: "SPIFFE-ID", Usage: "that of the members, if their certificates have SPIFFE IDs"})
	return verb(&cobra.Command{
		Use: "info FILE...", Short: "show who a certificate is for, and until when", Args: arguments(cobra.MinimumNArgs(1)),
		Example: "  relay tls info certs/relay-1.crt ca/ca.crt\n  relay tls info -o json certs/relay-1.crt",
	}, set, func(stdout io.Writer, files []string) error {
		now := time.Now()
		infos := []fileInfo{} // not nil: the JSON is [] for none
		var errs []error
		for _, file := range files {
			data, err := keyfile.Read(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			certs, err := keyfile.Certificates(data)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
				continue
			}
			for _, cert := range certs {
				info, err := identity.Describe(cert, now, template)
				if err != nil {
					return fmt.Errorf("--identity-template: %w", err)
				}
				infos = append(infos, fileInfo{file, info})
			}
		}
		text, err := document(infos)
		if err != nil {
			return err
		}
		errs = append(errs, form.show(stdout, text, func(p *page) { writeInfos(p, infos) }))
		return errors.Join(errs...)
	})
}

func rolesCommand() *cobra.Command {
	set := settings.New("tls roles", "RINGWAY_TLS_ROLES")
	form := form{output: formTable}
	settings.Enum(set, &form.output, settings.Spec{Name: "output", Letter: "o", Usage: "form of the output"}, forms...)
	return verb(&cobra.Command{
		Use: "roles", Short: "show which role may connect to which, and what for", Args: cobra.NoArgs,
		Long: "Rows are the certificates that open a connection, columns those that answer. All other\n" +
			"connections are refused at every listener that asks for a certificate. A relay's\n" +
			"ingress asks for one only with --ingress-client-ca: its peers are clients.",
		Example: "  relay tls roles\n  relay tls roles -o json",
	}, set, func(stdout io.Writer, _ []string) error {
		text, err := document(identity.ConnectionMatrix())
		if err != nil {
			return err
		}
		return form.show(stdout, text, writeRoles)
	})
}

// writeRoles writes the connection matrix, one line for each role that opens a connection.
func writeRoles(p *page) {
	fmt.Fprint(p, `initiator \ target`)
	matrix, roles := identity.ConnectionMatrix(), identity.Roles()
	for _, target := range roles {
		fmt.Fprintf(p, "\t%s", target)
	}
	for _, initiator := range roles {
		fmt.Fprintf(p, "\n%s", initiator)
		for _, target := range roles {
			fmt.Fprintf(p, "\t%s", cmp.Or(matrix[initiator][target], "no"))
		}
	}
	fmt.Fprintln(p)
}

func writeInfos(p *page, infos []fileInfo) {
	for i, info := range infos {
		if i > 0 {
			fmt.Fprintln(p)
		}
		holder, services := info.Problem, ""
		switch {
		case info.Claims != nil:
			holder, services = info.Claims.String(), servicesLine("services\t", *info.Claims)
		case info.Authority:
			holder = fmt.Sprintf("authority %q", info.Subject)
		}
		left, validity := time.Duration(info.RemainingSeconds)*time.Second, strings.ReplaceAll(string(info.Validity), "_", " ")
		switch info.Validity {
		case identity.Valid:
			validity += ", " + days(left) + " left"
		case identity.Expired:
			validity += " " + days(-left) + " ago"
		}
		fmt.Fprintf(p, "file\t%s\nholder\t%s\n%svalidity\t%s\nfrom\t%s\nuntil\t%s\nissuer\t%q\nkey\t%s\nserial\t%s\nsha256\t%s\n",
			info.File, holder, services, validity, info.NotBefore.Format(time.RFC3339), info.NotAfter.Format(time.RFC3339),
			info.Issuer, info.Key, info.Serial, info.Fingerprint)
	}
}

// days formats a duration in days, or in hours and minutes below one day.
func days(d time.Duration) string {
	if d < day {
		return d.Truncate(time.Minute).String()
	}
	if n := int(d / day); n != 1 {
		return fmt.Sprintf("%d days", n)
	}
	return "1 day"
}
