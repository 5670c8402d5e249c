package settings

import "github.com/spf13/pflag"

// flagValue records what the command line gives, without judging it.
type flagValue struct {
	setting *setting
	given   bool
	raw     []string
}

// Set records one occurrence. It never fails: Load judges all values together.
func (v *flagValue) Set(text string) error {
	v.given = true
	if v.setting.list {
		v.raw = append(v.raw, splitList(text)...)
	} else {
		v.raw = []string{text}
	}
	return nil
}

// String returns the default, which is what pflag shows in help.
func (v *flagValue) String() string {
	if v.setting == nil || v.setting.Secret {
		return ""
	}
	if v.setting.DefaultText != "" {
		return v.setting.DefaultText
	}
	v.setting.save()
	defer v.setting.restore()
	v.setting.reset()
	return v.setting.text()
}

// Type returns the placeholder that help shows for the value.
func (v *flagValue) Type() string {
	if v.setting.Placeholder != "" && v.setting.kind != "bool" {
		return v.setting.Placeholder
	}
	return v.setting.kind
}

// pflag adds the setting to fs.
func (st *setting) pflag(fs *pflag.FlagSet, value *flagValue) {
	usage := st.Usage
	switch {
	case st.Required && st.allowed != "":
		usage += " (required; " + st.allowed + ")"
	case st.Required:
		usage += " (required)"
	case st.allowed != "":
		usage += " (" + st.allowed + ")"
	}
	flag := fs.VarPF(value, st.Name, st.Short, usage)
	if st.kind == "bool" {
		flag.NoOptDefVal = "true"
	}
}
