import { type Command, action, createCommand } from '../../command.ts'
import type { Help } from '../../help.ts'
import { type Option, UsageError, argument } from '../../options.ts'

/** Words that may follow a command: its verbs, and the options of each usage. */
interface Words {
  readonly verbs: readonly string[]
  readonly options: readonly string[]
}

/** `completion` completes the names of `commands`, including its own. */
export const createCompletion = (commands: () => Readonly<Record<string, Command>>): Command =>
  createCommand('completion', {
    summary: 'prints a shell completion script',
    examples: [
      'source <(./tollgate completion bash)',
      './tollgate completion fish > ~/.config/fish/completions/tollgate.fish',
    ],
    action: action({
      text:
        'Prints a script for the shell. It completes `tollgate` and `./tollgate`, with the verbs and options of each ' +
        'command, and paths after an option.',
      options: { script: shell },
      run: ({ script }) => {
        const words = Object.entries(commands()).map(
          ([name, { help }]) => [name, wordsOf(name, help)] as const,
        )
        process.stdout.write(script(words))
      },
    }),
  })

/** Reads verbs and options from the usages, so that they have one source. */
function wordsOf(name: string, { usages, options = [] }: Help): Words {
  const syntaxes = usages.map(({ syntax }) => syntax)
  const verbs = syntaxes.flatMap((syntax) => {
    const [, verb = ''] = new RegExp(`^tollgate ${name} ([a-z][a-z|-]*)(?= |$)`).exec(syntax) ?? []
    return verb.split('|').filter((word) => word !== '')
  })
  const texts = [...syntaxes, ...options.flatMap((group) => group.options.map(([flag]) => flag))]
  const flags = texts.flatMap((text) => text.match(/--[a-z][a-z-]*/g) ?? [])
  return { verbs: [...new Set(verbs)], options: [...new Set([...flags, '--help'])] }
}

type Script = (commands: readonly (readonly [name: string, words: Words])[]) => string

const bash: Script = (commands) => `# tollgate completion for bash
_tollgate() {
  local current="\${COMP_WORDS[COMP_CWORD]}" candidates=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    candidates='${commands.map(([name]) => name).join(' ')} help --version'
  else
    case "\${COMP_WORDS[1]}" in
${commands
  .map(
    ([name, { verbs, options }]) =>
      `      ${name}) if [[ "$current" == -* ]]; then candidates='${options.join(' ')}'; elif [ "$COMP_CWORD" -eq 2 ]; then candidates='${verbs.join(' ')}'; fi ;;`,
  )
  .join('\n')}
      help) [ "$COMP_CWORD" -eq 2 ] && candidates='${commands.map(([name]) => name).join(' ')}' ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}
complete -o default -F _tollgate tollgate ./tollgate
`

/** zsh runs the script of bash. */
const zsh: Script = (commands) => `autoload -U +X bashcompinit && bashcompinit
${bash(commands)}`

const fish: Script = (commands) => {
  const names = commands.map(([name]) => name)
  const lines = commands.flatMap(([name, { verbs, options }]) => [
    ...(verbs.length === 0
      ? []
      : [
          `complete -c tollgate -n '__fish_seen_subcommand_from ${name}; and test (count (commandline -opc)) -eq 2' -f -a '${verbs.join(' ')}'`,
        ]),
    ...options.map(
      (option) =>
        `complete -c tollgate -n '__fish_seen_subcommand_from ${name}' -l ${option.slice(2)}`,
    ),
  ])
  return [
    '# tollgate completion for fish',
    `complete -c tollgate -n __fish_use_subcommand -f -a '${names.join(' ')} help'`,
    ...lines,
    '',
  ].join('\n')
}

const shells: Readonly<Record<string, Script>> = { bash, zsh, fish }

const shell: Option<Script> = {
  ...argument('bash|zsh|fish'),
  convert: ([name = '']) => {
    const script = Object.hasOwn(shells, name) ? shells[name] : undefined
    if (!script) throw new UsageError('completion takes bash, zsh or fish')
    return script
  },
}
