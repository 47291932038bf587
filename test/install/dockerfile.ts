import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  Copy,
  DockerfileParser,
  Env,
  From,
  Healthcheck,
  type Instruction,
  JSONInstruction,
} from 'dockerfile-ast'

/** One instruction of a Dockerfile, with its variables replaced. */
export interface Step {
  readonly keyword: string
  /** All arguments, on one line. */
  readonly text: string
  /** The exec form, for example of ENTRYPOINT; empty for the shell form. */
  readonly words: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** The stage that COPY reads from; undefined for the build context. */
  readonly from: string | undefined
}

export interface Stage {
  readonly name: string | undefined
  readonly base: string
  readonly steps: readonly Step[]
}

export const dockerfilePath = join(import.meta.dirname, '../../deploy/docker/Dockerfile')

/** Reads the stages of deploy/docker/Dockerfile, in their order. */
export function readStages(path = dockerfilePath): Stage[] {
  const variables: Record<string, string> = {}
  const stages: { name: string | undefined; base: string; steps: Step[] }[] = []
  for (const instruction of DockerfileParser.parse(readFileSync(path, 'utf8')).getInstructions()) {
    if (instruction instanceof From) {
      const base = instruction.getImage() ?? ''
      const name = instruction.getBuildStage() ?? undefined
      stages.push({ name, base: withVariables(base, variables), steps: [] })
      continue
    }
    const stage = stages.at(-1)
    if (stage) stage.steps.push(toStep(instruction))
    else Object.assign(variables, argument(instruction))
  }
  return stages
}

const argument = (instruction: Instruction): Record<string, string> => {
  const [name = '', value = ''] = (instruction.getArgumentsContent() ?? '').split('=')
  return { [name]: value }
}

const withVariables = (text: string, variables: Readonly<Record<string, string>>): string =>
  text.replace(/\$\{(\w+)\}/g, (_, name: string) => {
    const value = variables[name]
    if (value === undefined) throw new Error(`no ARG ${name}`)
    return value
  })

function toStep(instruction: Instruction): Step {
  const flags = instruction instanceof Copy ? instruction.getFlags() : []
  const command = instruction instanceof Healthcheck ? execForm(instruction) : undefined
  const strings = instruction instanceof JSONInstruction ? instruction.getJSONStrings() : []
  const properties = instruction instanceof Env ? instruction.getProperties() : []
  return {
    keyword: instruction.getKeyword(),
    text: instruction.getArgumentsContent() ?? '',
    words: command ?? strings.map((each) => each.getJSONValue()),
    env: Object.fromEntries(properties.map((each) => [each.getName(), each.getValue() ?? ''])),
    from: flags.find((flag) => flag.getName() === 'from')?.getValue() ?? undefined,
  }
}

/** The command of HEALTHCHECK CMD [...]. */
const execForm = (instruction: Healthcheck): string[] =>
  JSON.parse(/^CMD (\[.*\])$/.exec(instruction.getArgumentsContent() ?? '')?.[1] ?? '[]')
