import { readdirSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import type { Server } from '@grpc/grpc-js'
import { type PackageDefinition, loadSync } from '@grpc/proto-loader'
import { ReflectionService } from '@grpc/reflection'
import { HealthImplementation, protoPath as healthProto } from 'grpc-health-check'

const protoRoot = join(import.meta.dirname, '../../proto')

/**
 * Proto files of all contracts, for reflection: the files that the code was generated from, and
 * grpc.health.v1.
 */
export const protoFiles = readdirSync(protoRoot, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.startsWith('tollgate') && file.endsWith('.proto'))
  .map((file) => file.replaceAll(sep, '/'))
  .toSorted()

export interface Health {
  /** Sets the status that grpc.health.v1 returns. */
  set(serving: boolean): void
}

let reflection: ReflectionService | undefined

/** Parses the proto files, which takes a quarter of a second. */
function createReflection(): ReflectionService {
  const definition = loadSync([...protoFiles, healthProto], {
    includeDirs: [protoRoot, dirname(healthProto)],
    keepCase: true,
  })
  return new ReflectionService(oncePerFiles(definition))
}

/** Adds grpc.health.v1 and server reflection, both open to anyone who reaches the port. */
export function addHealthAndReflection(server: Server): Health {
  const health = new HealthImplementation({ '': 'NOT_SERVING' })
  health.addToServer(server)
  // Servers of one process, in tests, share it.
  reflection ??= createReflection()
  reflection.addToServer(server)
  return { set: (serving) => health.setStatus('', serving ? 'SERVING' : 'NOT_SERVING') }
}

// Every type comes with all files of its contract, and reflection decodes them per type, so keep
// one type per set of files.
function oncePerFiles(definition: PackageDefinition): PackageDefinition {
  const types = Object.entries(definition).map(
    ([name, type]) => [filesOf(type), [name, type]] as const,
  )
  return Object.fromEntries(new Map(types).values())
}

const filesOf = (type: PackageDefinition[string]): unknown =>
  'fileDescriptorProtos' in type ? type.fileDescriptorProtos : null
