//! Many inputs, in batches: the offline phase of the next batch runs on a second connection during
//! the online phase of the current one.
use crate::answer::{made_for, only};
use crate::claimed::{Asked, ClaimedMaterial};
use crate::wire::InputId;
use crate::{Answer, Client, ClientError, PhaseReport, Prepared};
use std::sync::mpsc;
use std::thread;
use tacit_backends::Material;
use tacit_graph::Units;
use tacit_net::Phase;

/// A batch that is asked for, its material, and the setup before that, if any.
type Made = (InputId, Option<PhaseReport>, Prepared, Material);

/// Answers inputs one after the other, without material. Continues after a refused answer: stopping
/// would reveal the refusal to the server.
fn one_by_one(
    client: &mut Client,
    inputs: &[Vec<f32>],
    mut each: impl FnMut(usize, Answer) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let (mut first, mut refused) = (None, 0);
    for (index, input) in inputs.iter().enumerate() {
        match client.online(Asked::Now(InputId::random()?), None, input) {
            Ok(answers) => each(index, only(answers))?,
            Err(error) if error.refuses_answer() => {
                refused += 1;
                first.get_or_insert((index, error));
            }
            Err(error) => return Err(error),
        }
    }
    first.map_or(Ok(()), |(index, error)| Err(error.with_counts(index, refused, inputs.len())))
}

/// Answers real-valued inputs, given in `units`, in order; calls `each` with the index and the
/// answer. Batches are as large as the back end, the server and `config.max_batch` allow. A second
/// connection makes the material, one batch ahead; stored material is not used. The first answers
/// include the cost of its setup. If the back end has no offline phase, inputs run one after the
/// other.
///
/// # Errors
/// An input does not fit the model (nothing was sent then), or the day's quota does not cover all
/// ([`Client::begin_call`]); the first error of either connection or of `each`, after the answers
/// before it were delivered. A refused answer ([`ClientError::refuses_answer`]) is an error that is
/// returned after all other answers.
pub fn infer_many(
    client: &mut Client,
    units: Units,
    inputs: &[Vec<f32>],
    mut each: impl FnMut(usize, Answer) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let inputs: Vec<Vec<f32>> =
        inputs.iter().map(|input| client.interface().accept(input, units)).collect::<Result<_, _>>()?;
    client.begin_call(inputs.len())?;
    if !client.needs_material()? {
        client.set_batch(1)?;
        return one_by_one(client, &inputs, each);
    }
    let mut maker = client.connect_again()?;
    maker.set_progress(client.progress());
    let batches: Vec<&[Vec<f32>]> = inputs.chunks(client.ask_batch(inputs.len())?).collect();
    let sizes: Vec<usize> = batches.iter().map(|batch| batch.len()).collect();
    let closer = maker.closer();
    let (sender, receiver) = mpsc::sync_channel::<Made>(0);
    thread::scope(|scope| {
        let making = scope.spawn(move || -> Result<_, ClientError> {
            for size in sizes {
                maker.set_batch(size)?;
                let setup = maker.setup_before(Phase::Offline)?;
                let name = InputId::random()?;
                let asking = maker.asking(name, None, None);
                let (prepared, material) = maker.make_for(name, Some(&asking))?;
                if sender.send((name, setup, prepared, material)).is_err() {
                    // The online side has failed and reports the error.
                    break;
                }
            }
            drop(sender);
            // Stays open until the server has used its half of the material.
            Ok(maker)
        });
        let answered = answer_all(client, &batches, &receiver, &mut each);
        drop(receiver);
        if answered.is_err() {
            // The maker may wait for a turn that is of no more use.
            closer.close();
        }
        let made = making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answered.and(made.map(|_| ()))
    })
}

/// Answers batches with the material that arrives, until there is no more.
fn answer_all(
    client: &mut Client,
    batches: &[&[Vec<f32>]],
    made: &mpsc::Receiver<Made>,
    mut each: impl FnMut(usize, Answer) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let mut index = 0;
    for batch in batches {
        let Ok((name, setup, prepared, material)) = made.recv() else {
            return Ok(());
        };
        client.set_batch(batch.len())?;
        let claimed = Some(ClaimedMaterial::made(prepared.id, material));
        for answer in made_for(client.online(Asked::Before(name), claimed, &batch.concat())?, setup, prepared) {
            each(index, answer)?;
            index += 1;
        }
    }
    Ok(())
}
