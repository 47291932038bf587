import { join } from 'node:path'
import type { Server } from '@grpc/grpc-js'
import { type PackageDefinition, loadSync } from '@grpc/proto-loader'
import { ReflectionService } from '@grpc/reflection'
import { HealthImplementation } from 'grpc-health-check'

const protoRoot = join(import.meta.dirname, '../../proto')

/** Every contract, for reflection: the files that the code was generated from. */
export const protoFiles = [
  'identity/v1/identity',
  'identity/v1/accounts',
  'identity/v1/management',
  'keys/v1/keys',
  'tokens/v1/tokens',
  'tokens/v1/grants',
  'tokens/v1/devices',
  'tokens/v1/authorization',
  'plans/v1/catalog',
  'allowances/v1/allowances',
  'allowances/v1/escrow',
  'allowances/v1/limits',
  'batch/v1/refusal',
  'books/v1/books',
  'metering/v1/metering',
  'metering/v1/loss',
  'metering/v1/quarantine',
  'metering/v1/reconciliation',
  'metering/v1/outbox',
  'usage/v1/usage',
  'signer/v1/signer',
  'signer/v1/decisions',
].map((file) => `tollgate/${file}.proto`)

export interface Health {
  /** What grpc.health.v1 answers from now on. */
  set(serving: boolean): void
}

/** Adds grpc.health.v1 and server reflection, both open to anyone who reaches the port. */
export function addHealthAndReflection(server: Server): Health {
  const health = new HealthImplementation({ '': 'NOT_SERVING' })
  health.addToServer(server)
  const definition = loadSync(protoFiles, { includeDirs: [protoRoot], keepCase: true })
  new ReflectionService(oncePerFiles(definition)).addToServer(server)
  return { set: (serving) => health.setStatus('', serving ? 'SERVING' : 'NOT_SERVING') }
}

// Every type comes with all files of its contract, and reflection decodes them type by type.
function oncePerFiles(definition: PackageDefinition): PackageDefinition {
  const types = Object.entries(definition).map(
    ([name, type]) => [filesOf(type), [name, type]] as const,
  )
  return Object.fromEntries(new Map(types).values())
}

const filesOf = (type: PackageDefinition[string]): unknown =>
  'fileDescriptorProtos' in type ? type.fileDescriptorProtos : null
