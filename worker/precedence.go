package worker

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// configFlag names the file that the other flags may come from.
const configFlag = "config"

// EnvironmentVariable is where a flag's value may come from: KCP_MIGRATE_<FLAG>.
func EnvironmentVariable(flag string) string {
	return "KCP_MIGRATE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Complete gives each flag that was not on the command line its value from the environment, or else from the file
// that the config flag, where there is one, names. What neither knows keeps its default.
func Complete(flags *pflag.FlagSet, lookupEnv func(string) (string, bool)) error {
	given := map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	if err := completeFromEnvironment(flags, given, lookupEnv); err != nil {
		return err
	}
	config := flags.Lookup(configFlag)
	if config == nil || config.Value.String() == "" {
		return nil
	}
	return completeFromFile(flags, given, config.Value.String())
}

func completeFromEnvironment(flags *pflag.FlagSet, given map[string]bool, lookupEnv func(string) (string, bool)) error {
	var firstError error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, found := lookupEnv(EnvironmentVariable(flag.Name))
		if !found || given[flag.Name] || firstError != nil {
			return
		}
		given[flag.Name] = true
		if err := flags.Set(flag.Name, value); err != nil {
			firstError = fmt.Errorf("read environment variable %s: %w", EnvironmentVariable(flag.Name), err)
		}
	})
	return firstError
}

func completeFromFile(flags *pflag.FlagSet, given map[string]bool, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config file: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		return fmt.Errorf("read config file %s: %w", path, err)
	}
	for key, value := range values {
		flag := flags.Lookup(key)
		if flag == nil || key == configFlag {
			return fmt.Errorf("read config file %s: unknown key %q; the keys are the names of the worker's flags", path, key)
		}
		if given[key] {
			continue
		}
		if err := setFlag(flag, value); err != nil {
			return fmt.Errorf("read config file %s: key %q: %w", path, key, err)
		}
	}
	return nil
}

func setFlag(flag *pflag.Flag, value any) error {
	switch value := value.(type) {
	case []any:
		list, isList := flag.Value.(pflag.SliceValue)
		if !isList {
			return fmt.Errorf("wants one value, has a list")
		}
		elements := make([]string, len(value))
		for i, element := range value {
			elements[i] = fmt.Sprint(element)
		}
		return list.Replace(elements)
	case map[string]any, nil:
		return fmt.Errorf("wants a %s", flag.Value.Type())
	default:
		return flag.Value.Set(fmt.Sprint(value))
	}
}
