//! `fusionctl models`.

use fusion_calibrations::models;

use crate::arguments::Models;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) fn run(command: &Models, output: Output) -> Result<(), Failure> {
    match command {
        Models::List => {
            let all = models::all()?;
            if output.json {
                return output.print(&json::document(Schema::ModelsList, &json::models::List::from(all))?);
            }
            output.print(&render::models::list(all, output))
        }
        Models::Show { name } => {
            let model = models::find(name)?;
            if output.json {
                let model = json::models::Model::new(model)?;
                return output.print(&json::document(Schema::ModelsShow, &model)?);
            }
            output.print(&render::models::show(model, output)?)
        }
    }
}
