import { quoted } from './body.ts'

/** What the schema validator (ajv, verbose) says about the first thing that is wrong. */
export interface ValidationProblem {
  readonly keyword: string
  readonly instancePath: string
  readonly params: Record<string, unknown>
  readonly parentSchema?: { readonly description?: unknown }
}

/** The field that is wrong, when it is one of ours, and a sentence for the caller. */
export function describeProblem(
  { keyword, instancePath, params, parentSchema }: ValidationProblem,
  part: string | undefined,
): { field?: string; says: string } {
  if (keyword === 'additionalProperties') {
    return { says: `unknown field ${quoted(String(params['additionalProperty']))}` }
  }
  const missing = keyword === 'required' ? String(params['missingProperty']) : undefined
  const field = missing ?? instancePath.slice(1)
  // A pattern of one \S is how a schema says "not blank".
  if (missing !== undefined || keyword === 'minLength' || params['pattern'] === '\\S') {
    return { field, says: `${field} is required` }
  }
  return { field, says: `${field} must be ${expectation(keyword, { params, parentSchema, part })}` }
}

interface About {
  readonly params: Record<string, unknown>
  readonly parentSchema: ValidationProblem['parentSchema'] | undefined
  readonly part: string | undefined
}

function expectation(keyword: string, { params, parentSchema, part }: About): string {
  const allowed = params['allowedValues']
  if (Array.isArray(allowed)) return `one of: ${allowed.join(', ')}`
  // Query values are all text, so a wrong type there is a name given twice.
  if (keyword === 'type')
    return part === 'querystring' ? 'given once' : `a ${String(params['type'])}`
  if (keyword === 'maxLength') return `at most ${String(params['limit'])} characters`
  return String(parentSchema?.description ?? 'valid')
}
