import { DomainError } from '../../proto/errors.ts'
import { quoted } from './texts.ts'
import type { RouteRules } from './route.ts'

/** Members that Fastify and its validator (ajv, verbose) add to the errors that they throw. */
interface FrameworkError {
  readonly code?: string
  readonly statusCode?: number
  readonly validation?: readonly SchemaViolation[]
  readonly validationContext?: string
}

interface SchemaViolation {
  readonly keyword: string
  readonly instancePath: string
  readonly params: Record<string, unknown>
  readonly parentSchema?: { readonly description?: unknown; readonly properties?: object }
}

/**
 * Converts anything thrown while handling a request into a DomainError. Framework errors that the
 * caller caused become refusals with a message for the caller; everything else becomes INTERNAL
 * with the error as its cause.
 */
export function toRefusal(
  thrown: Error & FrameworkError,
  rules: RouteRules | undefined,
): DomainError {
  if (thrown instanceof DomainError) return thrown
  const [violation] = thrown.validation ?? []
  if (violation) return violationRefusal(violation, { part: thrown.validationContext, rules })
  if (thrown.code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return new DomainError('BODY_TOO_LARGE', 'the body must be at most 1 MiB')
  if (thrown.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return mediaTypeRefusal(rules)
  return isCallersFault(thrown)
    ? new DomainError('REQUEST_INVALID', 'the request is malformed', { cause: thrown })
    : new DomainError('INTERNAL', 'the gateway failed', { cause: thrown })
}

const isCallersFault = ({ statusCode = 500 }: FrameworkError): boolean =>
  statusCode >= 400 && statusCode < 500

function mediaTypeRefusal(rules: RouteRules | undefined): DomainError {
  return rules?.accepts === 'form'
    ? new DomainError('REQUEST_INVALID', 'send the body as application/x-www-form-urlencoded')
    : new DomainError('MEDIA_TYPE_UNSUPPORTED', 'send the body as application/json')
}

function violationRefusal(
  violation: SchemaViolation,
  { part, rules }: { part: string | undefined; rules: RouteRules | undefined },
): DomainError {
  const { field, message } = describeViolation(violation, part)
  const isAmount = field !== undefined && rules?.amounts?.includes(field)
  return new DomainError(isAmount ? 'AMOUNT_INVALID' : 'REQUEST_INVALID', message)
}

/** Returns the invalid field, if it is a known one, and a message for the caller. */
function describeViolation(
  violation: SchemaViolation,
  part: string | undefined,
): { field?: string; message: string } {
  const { keyword, instancePath, params } = violation
  if (keyword === 'additionalProperties') {
    const name = quoted(String(params['additionalProperty']))
    const kind = parameterKinds[part ?? '']
    return { message: kind ? unknownParameter(kind, name, violation) : `unknown field ${name}` }
  }
  const missing = keyword === 'required' ? String(params['missingProperty']) : undefined
  const field = missing ?? instancePath.slice(1)
  // In our schemas the pattern \S means "not blank".
  if (missing !== undefined || keyword === 'minLength' || params['pattern'] === '\\S')
    return { field, message: `${field} is required` }
  return { field, message: `${field} must be ${expectationOf(violation, part)}` }
}

/** Request parts that are lists of parameters. `arguments` are those of an MCP tool. */
const parameterKinds: Readonly<Record<string, string>> = {
  querystring: 'query parameter',
  arguments: 'parameter',
}

function unknownParameter(kind: string, name: string, { parentSchema }: SchemaViolation): string {
  const known = Object.keys(parentSchema?.properties ?? {}).sort()
  const rest =
    known.length === 0 ? 'this route has no parameters' : `this route accepts: ${known.join(', ')}`
  return `unknown ${kind} ${name}; ${rest}`
}

function expectationOf(
  { keyword, params, parentSchema }: SchemaViolation,
  part: string | undefined,
): string {
  const allowed = params['allowedValues']
  if (Array.isArray(allowed)) return `one of: ${allowed.join(', ')}`
  // All query values are strings, so a type error means that a name occurs twice.
  if (keyword === 'type')
    return part === 'querystring' ? 'given once' : nameOfType(String(params['type']))
  if (keyword === 'maxLength') return `at most ${String(params['limit'])} characters`
  return String(parentSchema?.description ?? 'valid')
}

const nameOfType = (type: string): string => (type === 'array' ? 'a list' : `a ${type}`)
